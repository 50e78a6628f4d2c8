"""The exception that ended a program is found in its output."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepset.agent.diagnosis import find_error, last_lines, last_traceback

TORCHRUN_ITSELF = """Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("try:\n 1/0\nexcept Exception as e:\n raise OSError('disk') from e", "OSError: disk"),
        ("try:\n 1/0\nfinally:\n {}['later']", "KeyError: 'later'"),
        ("raise ValueError('first\\nsecond')", "ValueError: first"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("class Odd(Exception): pass\nraise Odd", "Odd"),
        (
            "import json; json.loads('{')",
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        ),
    ],
)
def test_finds_the_exception_line_of_python(program: str, error: str) -> None:
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert last_traceback("noise\n" + output + "more noise\n").startswith(error)


def test_an_exception_group_shows_its_last_member_that_was_raised() -> None:
    program = "try:\n 1/0\nexcept Exception as e:\n raise ExceptionGroup('both', [ValueError('a'), e])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert last_traceback(output) == "ZeroDivisionError: division by zero"
    program = "raise ExceptionGroup('both', [ValueError('a'), OSError('b')])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert last_traceback(output) == "ExceptionGroup: both (2 sub-exceptions)"


def test_the_last_of_several_tracebacks_counts() -> None:
    swallowed = "Traceback (most recent call last):\n  File 'a'\nValueError: early\n"
    fatal = "Traceback (most recent call last):\n  File 'b'\nTypeError: late\n"
    assert last_traceback(swallowed + "epoch 1\n" + fatal) == "TypeError: late"


@pytest.mark.parametrize(
    "body", ["{}['key']", "try:\n   1 / 0\n  finally:\n   {}['key']"], ids=["one traceback", "a chain of tracebacks"]
)
def test_an_exception_that_python_ignored_is_not_the_error(body: str) -> None:
    program = f"class Bar:\n def __del__(self):\n  {body}\nbar = Bar()\nraise ImportError('no IProgress')"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert "KeyError" in output
    for text in (output, f"epoch 1\n{output}bye\n"):
        assert find_error(text, code=1) == "ImportError: no IProgress"


def test_torchs_tag_before_each_line_is_ignored() -> None:
    tagged = "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'a'\n[rank1]: ValueError: tagged\n"
    assert last_traceback(tagged) == "ValueError: tagged"


def test_the_traceback_of_the_failed_rank_is_preferred_to_a_later_one() -> None:
    tagged = (
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'a'\n[rank1]: ValueError: cause\n"
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File 'a'\n[rank0]: RuntimeError: aftermath\n"
    )
    assert find_error(tagged + TORCHRUN_ITSELF, rank=1) == "ValueError: cause"
    assert find_error(tagged + TORCHRUN_ITSELF, rank=0) == "RuntimeError: aftermath"


def test_torchruns_own_traceback_is_not_the_error() -> None:
    assert last_traceback(TORCHRUN_ITSELF) == ""
    swallowed = "Traceback (most recent call last):\n  File 'a'\nValueError: the ranks\n"
    assert last_traceback(swallowed + TORCHRUN_ITSELF) == "ValueError: the ranks"


def test_an_unfinished_traceback_has_no_error() -> None:
    assert last_traceback("Traceback (most recent call last):\n  File 'a'\n") == ""
    assert last_traceback("Traceback (most recent call last):") == ""


def test_open_mpis_boxed_message_is_one_line() -> None:
    box = "-" * 74
    output = f"{box}\nThere are not enough slots available\nin the system.\n{box}\n"
    assert find_error(output) == "There are not enough slots available in the system."


def test_the_tail_contains_only_the_last_state_of_a_progress_bar() -> None:
    assert last_lines("a\n 10%\r 50%\r100%\nb\r\n\n") == ["a", "100%", "b"]


def test_an_error_is_one_line_of_bounded_length() -> None:
    output = "Traceback (most recent call last):\n  File 'a'\nValueError: " + "x" * 5000
    assert len(find_error(output)) == 1000
