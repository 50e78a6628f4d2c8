"""The error of a failed rank is what ended it: the text of `sys.exit`, the signal of a crash, or its last exception.

A path with the word "error", and an exception that the code has handled and logged, are not the error.
Source: pytorch/pytorch#91278, and other reports in which torchrun names no error.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import stepset
from stepset.agent.diagnosis import failure_of, find_error, last_lines
from stepset.agent.lines import Tail
from stepset.errors import TrainingFailedError
from stepset.run_status import Failure
from stepset.watch.diagnose import Observation, diagnose

HANDLED = """
import logging, os, signal, sys
try:
    {}["optional"]
except KeyError:
    logging.exception("cannot read an optional key")
print("resumed", flush=True)
"""


def ended(program: str, *arguments: str) -> tuple[str, int]:
    """Returns the output of a program as the agent reads it, and the exit code of a shell."""
    command = [sys.executable, "-u", *arguments, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout, done.returncode if done.returncode >= 0 else 128 - done.returncode


def error_of(program: str, *arguments: str) -> str:
    text, code = ended(program, *arguments)
    return find_error(text, code=code)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "print('epoch 1')",
        "import logging; logging.warning('cannot import apex')",
        "import warnings; warnings.warn('error bars are not drawn')",
        "print('reading /data/error/shard-1.tar')",
        HANDLED,
    ],
)
def test_the_text_of_sys_exit_is_the_error(before: str) -> None:
    assert error_of(f"{before}\nimport sys; sys.exit('lr must be positive')") == "lr must be positive"


@pytest.mark.parametrize(
    "last", ["print('epoch 3: loss 0.1')", "print('{\"loss\": 0.1}')", "print('====')", "print('INFO:root:bye')", ""]
)
def test_without_a_text_the_last_line_of_the_training_is_not_the_error(last: str) -> None:
    assert error_of(f"{last}\nimport sys; sys.exit(1)") == ""


def test_an_error_that_was_printed_before_is_preferred_to_the_last_line() -> None:
    assert error_of("print('Error: no data in s3://a/b')\nprint('bye')\nimport sys; sys.exit(1)").startswith(
        "Error: no"
    )


@pytest.mark.parametrize("file", ["err.py", "error.py", "OutOfMemoryError.py"])
def test_the_error_of_a_crash_is_its_signal_whatever_the_file_is_named(file: str, tmp_path: Path) -> None:
    script = tmp_path / "error" / file
    script.parent.mkdir()
    script.write_text("import os, signal\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\ncrash()\n")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    text = f"{done.stdout}Extension modules: yaml._yaml, codec.error, some.ModuleError (total: 3)\n"
    assert find_error(text, code=139) == "Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    "line",
    [
        "saved to ./runs/error-analysis/out.bin",
        "loading /data/error/shard-1.tar",
        "wrote error.log",
        "reading s3://bucket/ValueError/x",
        "epoch 3 error: 0.12",
        "val error rate=0.5",
        "error_rate 1",
    ],
)
def test_a_path_or_a_metric_is_not_the_error(line: str) -> None:
    assert find_error(f"{line}\n", code=3) == ""


@pytest.mark.parametrize(
    "line",
    [
        "./train.py:3: error: bad option",
        "train: error: the following arguments are required: --lr",
        "cannot open /data/x",
        "CUDA error 700",
        "OSError: [Errno 5] Input/output error: '/data/a'",
        "error 13: disk",
    ],
)
def test_an_error_with_a_path_is_the_error(line: str) -> None:
    assert find_error(f"starting\n{line}\n", code=2) == line


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "os._exit(4)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.abort()",
        "print('epoch 2'); sys.exit(1)",
    ],
)
def test_an_exception_that_was_handled_and_logged_is_not_the_error(end: str) -> None:
    assert error_of(f"{HANDLED}\n{end}") == ""


@pytest.mark.parametrize(
    "program",
    [
        "raise ValueError('bad')",
        "import atexit; atexit.register(print, 'closing the files')\nraise ValueError('bad')",
        "import traceback, sys\ntry:\n raise ValueError('bad')\nexcept Exception:\n traceback.print_exc(); sys.exit(3)",
        "import logging, sys\ntry:\n raise ValueError('bad')\nexcept ValueError:\n logging.exception('x'); sys.exit(1)",
        "import os, sys, atexit\natexit.register(os.abort)\nraise ValueError('bad')",
        "print('INFO: epoch 1')\nimport atexit; atexit.register(print, 'bye')\nraise ValueError('bad')",
        f"{HANDLED}\nraise ValueError('bad')",
    ],
)
def test_the_exception_that_ended_the_process_is_the_error(program: str) -> None:
    assert error_of(program, "-X", "faulthandler") == "ValueError: bad"


PRINTED = """
import atexit, faulthandler, logging, os, signal, sys, threading, traceback
def load():
    try:
        {}["optional"]
    except KeyError:
        traceback.print_exc()
load()
"""
FIVE = "for n in range(5): print('shard', n)"
TERMINATE = """print("terminate called after throwing an instance of 'E'\\n  what():  boom")"""


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("print('epoch 2', flush=True); sys.exit(1)", ""),
        ("print('step 3, loss 0.1', flush=True); os._exit(1)", ""),
        (f"{FIVE}\nsys.exit('lr must be positive')", "lr must be positive"),
        (f"{FIVE}\nprint('Error: no data in s3://a/b'); sys.exit(1)", "Error: no data in s3://a/b"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "Fatal Python error: Segmentation fault"),
        (f"{TERMINATE}\nos.abort()", "what():  boom"),
        ("print('epoch 2'); os.kill(os.getpid(), signal.SIGKILL)", ""),
    ],
)
def test_an_exception_that_was_caught_and_printed_is_not_the_error_if_the_program_went_on(end: str, error: str) -> None:
    assert error_of(f"{PRINTED}\n{end}", "-X", "faulthandler") == error


@pytest.mark.parametrize(
    "program",
    [
        f"{PRINTED}\nprint('cleaning up')\nsys.exit(1)",
        f"{PRINTED}\nos._exit(1)",
        f"{PRINTED}\nos._exit(3)",
    ],
)
def test_an_exception_that_was_printed_at_the_end_of_the_program_is_the_error(program: str) -> None:
    assert error_of(program, "-X", "faulthandler") == "KeyError: 'optional'"


BAR = "Epoch 1:   3%|3        | 3/100 [00:01<00:40, 2it/s]"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("try:\n {}['a']\nexcept KeyError:\n raise ValueError('bad')", "ValueError: bad"),
        ("try:\n {}['a']\nexcept KeyError as error:\n raise ValueError('bad') from error", "ValueError: bad"),
        ("raise ExceptionGroup('bad', [KeyError('a')])", "ExceptionGroup: bad (1 sub-exception)"),
        ("import atexit\nfor n in range(5): atexit.register(print, n)\nraise ValueError('bad')", "ValueError: bad"),
        (f"import atexit\natexit.register(print, {BAR!r})\nraise ValueError('bad')", "ValueError: bad"),
        (
            "import atexit, os\ndef end():\n os.abort()\natexit.register(end)\nraise ValueError('bad')",
            "ValueError: bad",
        ),
        (
            "import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()\nraise SystemExit(1)",
            "ZeroDivisionError: division by zero",
        ),
        (
            "import subprocess, sys\nran = subprocess.run([sys.executable, '-c', 'raise ValueError(1)'])\n"
            "raise SystemExit(ran.returncode)",
            "ValueError: 1",
        ),
    ],
)
def test_the_variants_of_an_uncaught_exception_are_the_error(program: str, error: str) -> None:
    assert error_of(program, "-X", "faulthandler") == error


def test_the_stack_of_a_dump_is_not_the_error() -> None:
    assert error_of("import faulthandler, sys; faulthandler.dump_traceback(); sys.exit(1)") == ""


def test_the_error_and_the_last_lines_have_no_colours() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File \x1b[35m"t.py"\x1b[0m, line \x1b[35m1\x1b[0m, in \x1b[35m<module>\x1b[0m\n'
        "    \x1b[31mf\x1b[0m\x1b[1;31m()\x1b[0m\n"
        "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m\n"
    )
    tail = Tail()
    tail.add(text.encode())
    failure = failure_of(1 << 8, tail, {}, 0)
    assert failure["error"] == "ValueError: bad"
    assert failure["tail"][1] == '  File "t.py", line 1, in <module>'


def test_of_a_launcher_the_last_traceback_is_the_error_whatever_follows() -> None:
    text = "Traceback (most recent call last):\n  File 'a'\nValueError: bad\nstopping the other ranks\n"
    assert find_error(text) == "ValueError: bad"


def test_the_last_lines_do_not_bring_the_handled_exception_back() -> None:
    text, code = ended(f"{HANDLED}\nsys.exit(3)")
    tail = tuple(text.splitlines())
    failure = diagnose([Observation("rank 0", 1.0, 0, "node-0", exit_code=code, searched=True, tail=tail)])
    assert failure is not None
    assert (failure.error, failure.frame) == ("", "")
    assert failure.message == "rank 0 (pod node-0) exited with code 3; its last line: resumed"


def test_a_logged_error_in_a_path_is_not_the_error() -> None:
    tail = ("INFO saved to /data/ERROR/1.log",)
    failure = diagnose([Observation("rank 0", 1.0, 0, "node-0", exit_code=3, searched=True, tail=tail)])
    assert failure is not None and failure.error == ""


@pytest.mark.frameworks
def test_the_error_in_a_worker_of_a_data_loader_is_the_error_of_the_rank(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        from torch.utils.data import DataLoader, Dataset
        class Samples(Dataset):
            def __len__(self): return 2
            def __getitem__(self, i): raise ValueError(f"sample {i} has no label")
        for batch in DataLoader(Samples(), num_workers=1): pass
        """)
    )
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    tail = tuple(last_lines(done.stdout, 100))
    error = find_error(done.stdout, code=done.returncode)
    failure = diagnose([Observation("rank 1", 1.0, 1, "node-0", exit_code=1, error=error, tail=tail)])
    assert failure is not None and failure.error == "ValueError: sample 0 has no label"
    assert failure.frame.startswith(f"{script}, line 5, in __getitem__: ")
    assert failure.error == find_error("\n".join(f"[rank1]: {line}" for line in done.stdout.splitlines()), rank=1)


@pytest.mark.local
@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("sys.exit('lr must be positive')", "lr must be positive"),
        ("sys.exit(3)", ""),
        (
            "import faulthandler; faulthandler.enable(); os.kill(os.getpid(), signal.SIGSEGV)",
            "Fatal Python error: Segm",
        ),
    ],
)
def test_a_local_run_reports_what_ended_the_rank(
    end: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(f"{HANDLED}\n{end}\n")
    with pytest.raises(TrainingFailedError) as raised:
        stepset.run(tmp_path / "train.py", framework="plain")
    failure = raised.value.status.failure
    assert isinstance(failure, Failure)
    assert failure.error.startswith(error) and bool(failure.error) == bool(error)
