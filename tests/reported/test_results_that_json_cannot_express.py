"""A result that JSON cannot express becomes null with a note, and does not fail a training that has succeeded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepset
from stepset.cli.output.formats import as_json
from stepset.functions.program import program_text
from stepset.run_status import Phase
from stepset.watch.bounded_json import without_nan
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.present.sentences import NOT_FINITE
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import seen, stream

NAN_SCRIPT = """\
import json, os
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"loss": float("nan"), "best": [float("-inf"), 1.5], "deep": {"x": [{"y": float("inf")}]}}, file)
"""
NAN_RESULT = {"loss": None, "best": [None, 1.5], "deep": {"x": [{"y": None}]}}
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@given(PLAIN)
def test_any_result_is_json_without_nan(value: Any) -> None:
    found = without_nan(value)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert without_nan(found) is found, "nothing is left to replace, so no note is made"


def test_a_result_of_a_run_on_a_cluster_is_null_with_a_note() -> None:
    def diverges(change: Change) -> Change:
        text = json.dumps(change.object).replace(r"\"loss\": 0.25", r"\"loss\": NaN")
        return Change(change.verb, json.loads(text))

    status = status_of(seen(map(diverges, stream("jobset_succeeds"))), Reports(), 0.0)
    assert (status.phase, status.result) == (Phase.SUCCEEDED, {"loss": None, "world": "4"})
    assert NOT_FINITE in status.notes


def returned_by(source: str, tmp_path: Path) -> tuple[Any, str]:
    """Returns the result of a function as the backends show it, and the output of the rank, which exits with code 0."""
    program, result = tmp_path / "program.py", tmp_path / "result"
    program.write_text(program_text(source, "fit"), encoding="utf-8")
    environment = {**os.environ, "RANK": "0", "STEPSET_RESULT_FILE": str(result)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return without_nan(json.loads(result.read_text(encoding="utf-8"))), done.stderr


@pytest.mark.local
@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("numpy.ones((2, 2), dtype='int8')", [[1, 1], [1, 1]]),
        ("{numpy.int64(3): numpy.float16(0.5)}", {"3": 0.5}),
        ("{'a': numpy.longdouble(1.5), 'b': numpy.bool_(True)}", {"a": 1.5, "b": True}),
        ("{'loss': numpy.float32('nan'), 'all': numpy.array([1.0, numpy.inf])}", {"loss": None, "all": [1.0, None]}),
        ("numpy.array('2026-01-02', dtype='datetime64[D]')", "2026-01-02"),
        ("numpy.str_('x')", "x"),
    ],
)
def test_values_of_numpy_become_json(returned: str, result: Any, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    assert returned_by(f"def fit():\n    import numpy\n    return {returned}\n", tmp_path) == (result, "")


@pytest.mark.local
@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("float('nan')", None),
        ("{'path': pathlib.Path('/a/b'), 'at': datetime.date(2026, 1, 2)}", {"path": "/a/b", "at": "2026-01-02"}),
        ("{1: (2, {3}), None: 0}", {"1": [2, [3]], "None": 0}),
    ],
)
def test_other_values_with_one_meaning_become_json(returned: str, result: Any, tmp_path: Path) -> None:
    assert returned_by(f"def fit():\n    import datetime, pathlib\n    return {returned}\n", tmp_path) == (result, "")


@pytest.mark.local
def test_a_dataclass_becomes_a_mapping_of_its_fields(tmp_path: Path) -> None:
    source = """
def fit():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Scores:
        loss: float
        best: object = None

    return Scores(0.25, best=Scores(0.5))
"""
    assert returned_by(source, tmp_path) == ({"loss": 0.25, "best": {"loss": 0.5, "best": None}}, "")


@pytest.mark.local
@pytest.mark.parametrize(
    ("body", "result", "where"),
    [
        ("return object()", None, "fit() is of type object"),
        ("return {'loss': 0.5, 'model': [object()]}", {"loss": 0.5, "model": [None]}, "fit()['model'][0] is of type"),
        ("return {'a': 1j, 'b': b'x'}", {"a": None, "b": None}, "fit()['a'] is of type complex"),
        ("x = [1]; x.append(x); return x", [1, None], "fit()[1] contains itself"),
        ("return 10 ** 5000", None, "cannot be converted to JSON"),
        ("return (0 for _ in ())", None, "fit() is of type generator"),
    ],
)
def test_other_values_become_null_with_a_note(body: str, result: Any, where: str, tmp_path: Path) -> None:
    found, printed = returned_by(f"def fit():\n    {body}\n", tmp_path)
    assert found == result
    assert printed.startswith("stepset: note: ") and where in printed


@pytest.mark.local
def test_a_result_that_cannot_be_stored_does_not_fail_the_rank(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(program_text("def fit():\n    return 1\n", "fit"), encoding="utf-8")
    environment = {**os.environ, "RANK": "0", "STEPSET_RESULT_FILE": "/dev/full"}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "stepset: note: the result of fit() cannot be stored: " in done.stderr


@pytest.mark.local
def test_python_and_the_command_line_show_null_and_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(NAN_SCRIPT)
    status = stepset.run(tmp_path / "train.py", framework="plain")
    assert (status.phase, status.result, status.notes) == (Phase.SUCCEEDED, NAN_RESULT, (NOT_FINITE,))
    assert json.loads(as_json(status.to_dict()))["result"] == NAN_RESULT
    page = subprocess.run(
        [sys.executable, "-m", "stepset", "status", status.name], capture_output=True, text=True, check=True
    ).stdout
    assert NOT_FINITE.partition(",")[0] in " ".join(page.split())
    for command in ("wait", "diagnose"):
        shown = subprocess.run([sys.executable, "-m", "stepset", command, status.name], capture_output=True, text=True)
        assert shown.stderr.splitlines()[0] == f"stepset: note: {NOT_FINITE}"
    assert "NaN}" not in page and '"loss": null' in page
