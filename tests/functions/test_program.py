"""`program_text` turns a function's source and JSON arguments into a program that calls it in every rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.functions.program import Place, call_text, program_text

ECHO = "def echo(*args, **kwargs):\n    return [args, kwargs]\n"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@dataclass
class Settings:
    rate: float


def run(program: str, tmp_path: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Runs a program as a rank; returns the ended process and the result that the program wrote, None without one."""
    result = tmp_path / "result"
    result.unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if "RANK" not in name}
    done = subprocess.run(
        [sys.executable, "-"],
        input=program,
        env={**inherited, "STEPSET_RESULT_FILE": str(result), **env},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    return done, json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


def test_the_return_value_of_rank_0_is_the_result(tmp_path: Path) -> None:
    source = "def fit(epochs, lr=0.1):\n    return {'epochs': epochs, 'lr': lr}\n"
    _, result = run(program_text(source, "fit", [3], {"lr": 0.5}), tmp_path, RANK="0")
    assert result == {"epochs": 3, "lr": 0.5}


@pytest.mark.parametrize("code", [3, 0], ids=str)
def test_an_exit_code_while_a_process_group_exists_has_a_traceback(code: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = f"""\
def fit():
    import sys
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://{tmp_path}/group", rank=0, world_size=1)
    sys.exit({code})
"""
    done, _ = run(program_text(source, "fit", place=Place("train.py", 1)), tmp_path)
    assert ("SystemExit: 3" in done.stderr) == (code == 3)
    assert ('File "train.py", line 6, in fit' in done.stderr) == (code == 3)
    assert "_stepset_main" not in done.stderr


def test_scalars_of_numpy_become_numbers_in_arguments_and_in_the_result(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    source = """\
def fit(rate):
    import numpy

    return {"rate": rate, "loss": numpy.float32(3), "steps": [numpy.int64(7)], "ok": numpy.bool_(True)}
"""
    _, result = run(program_text(source, "fit", [numpy.float32(0.5)]), tmp_path, RANK="0")
    assert result == {"rate": 0.5, "loss": 3.0, "steps": [7], "ok": True}


@pytest.mark.parametrize("value", ["numpy.ones(1)", "numpy.longdouble(1)", "numpy.complex64(1)"])
def test_other_values_of_numpy_are_no_arguments(value: str) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(BadInputError, match=r"^args\[0\]: a value of type \w+ is not JSON; give ") as caught:
        program_text("def fit(x): ...\n", "fit", [eval(value, {"numpy": numpy})])
    assert ("give its tolist()" in str(caught.value)) == (value == "numpy.ones(1)")


def test_nan_and_infinity_in_the_result_are_kept(tmp_path: Path) -> None:
    returned = "{'loss': float('nan'), 'all': (float('inf'), -float('inf'), 0.5), 'text': 'NaN'}"
    done, result = run(program_text(f"def fit():\n    return {returned}\n", "fit"), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert repr(result) == "{'loss': nan, 'all': [inf, -inf, 0.5], 'text': 'NaN'}"


@pytest.mark.parametrize("line", [1, 3, 500])
def test_tracebacks_show_the_lines_of_the_original_file(line: int, tmp_path: Path) -> None:
    source = """\
def fit(x):
    import inspect

    def inner():
        return 1 / x

    assert inspect.getsource(inner).lstrip().startswith("def inner():\\n        return 1 / x")
    return [inner() for _ in range(1)]
"""
    program = tmp_path / "stepset_main.py"
    program.write_text(program_text(source, "fit", [0], place=Place("notes.py", line)))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f'  File "notes.py", line {line + 7}, in fit\n    return [inner() for _ in range(1)]' in done.stderr
    assert f'  File "notes.py", line {line + 4}, in inner\n    return 1 / x\n' in done.stderr
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "stepset_main" not in done.stderr, "no frames of the program"


@pytest.mark.parametrize("name", ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MLX_RANK", "STEPSET_NODE_RANK"])
def test_other_ranks_write_no_result_with_any_launchers_variable(tmp_path: Path, name: str) -> None:
    done, result = run(program_text("def fit():\n    return 1\n", "fit"), tmp_path, **{name: "1"})
    assert (done.returncode, result) == (0, None)


def test_the_rank_of_a_process_takes_precedence_over_that_of_its_node(tmp_path: Path) -> None:
    program = program_text("def fit():\n    return 1\n", "fit")
    assert run(program, tmp_path, RANK="0", STEPSET_NODE_RANK="1")[1] == 1
    assert run(program, tmp_path, RANK="1", STEPSET_NODE_RANK="0")[1] is None


def test_a_function_that_returns_none_writes_no_result(tmp_path: Path) -> None:
    done, result = run(program_text("def fit():\n    pass\n", "fit"), tmp_path)
    assert (done.returncode, result) == (0, None)


def test_annotations_are_not_evaluated(tmp_path: Path) -> None:
    source = "def fit(data: Elsewhere[int]) -> Nowhere:\n    return data\n"
    assert run(program_text(source, "fit", ["here"]), tmp_path)[1] == "here"


@settings(max_examples=15, deadline=None)  # each example is a process
@given(args=st.lists(JSON, max_size=3), kwargs=st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), JSON))
def test_arguments_are_passed_unchanged(tmp_path_factory: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    kwargs = {f"k_{key}": value for key, value in kwargs.items()}
    done, result = run(program_text(ECHO, "echo", args, kwargs), tmp_path_factory.mktemp("rank"))
    assert done.returncode == 0, done.stderr
    assert result == [args, kwargs]


def test_sequences_are_passed_as_lists(tmp_path: Path) -> None:
    assert run(program_text(ECHO, "echo", [(1, range(2))]), tmp_path)[1] == [[[1, [0, 1]]], {}]


def test_text_with_python_syntax_is_passed_unchanged(tmp_path: Path) -> None:
    tricky = "'''\"\"\"\\ {braces} {0} \n\0 \u2028 \U0001f600"
    assert run(program_text(ECHO, "echo", [tricky]), tmp_path)[1] == [[tricky], {}]


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ([1, {"a": [object()]}], {}, r"args\[1\]\.a\[0\]: a value of type object is not JSON"),
        ([], {"data": {1, 2}}, r"^argument data: a value of type set is not JSON; give list\(\.\.\.\) of it$"),
        ([Settings(1)], {}, r"^args\[0\]: .* Settings is not JSON; give dataclasses\.asdict\(\.\.\.\) of it$"),
        ([run], {}, r"^args\[0\]: .* function is not JSON; import or define it inside the function$"),
        ([{1: "a"}], {}, r"args\[0\]: the key 1 is not text"),
        ([float("inf")], {}, r"args\[0\]: inf is not JSON"),
        ([10**5000], {}, r"args\[0\]: an integer of 16610 bits is too long"),
        ([b"bytes"], {}, r"args\[0\]: a value of type bytes is not JSON"),
        ([Path("x")], {}, r"args\[0\]: a value of type PosixPath is not JSON; give str\(path\)$"),
    ],
)
def test_the_error_names_the_location_of_an_argument_that_is_not_json(
    args: list[Any], kwargs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInputError, match=problem):
        program_text(ECHO, "echo", args, kwargs)


def test_the_call_of_a_program_does_not_contain_values_whose_key_indicates_a_secret() -> None:
    kwargs = {
        "hf_token": "v1",
        "lr": 0.1,
        "hub": {"API_KEY": "v2", "user": "u"},
        "tokenizer": "gpt2",
        "Password": ["v3"],
    }
    assert call_text(program_text("def fit(*args, **kwargs): ...", "fit", [[{"secret": "v4"}]], kwargs)) == (
        "fit([{'secret': ***}], hf_token=***, lr=0.1, hub={'API_KEY': ***, 'user': 'u'}, tokenizer='gpt2',"
        " Password=***)"
    )


def test_the_call_of_a_program_contains_its_arguments() -> None:
    imitation = "def fit(*args, **kwargs):\n    import json\n    given = json.loads('{}')\n"
    args, kwargs = ["a\nb", None, [1.5, True]], {"lr": 0.1, "a b": {"x": "'"}}
    assert call_text(program_text(imitation, "fit", args, kwargs)) == (
        "fit('a\\nb', None, [1.5, True], lr=0.1, 'a b'={'x': \"'\"})"
    )
    assert call_text("given = 1") == call_text('"""Runs the function \'fit\'; generated by stepset."""\n') == ""
