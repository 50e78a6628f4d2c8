"""A function that fails: the exception's HTML shows the failed rank's lines, escaped and without Secrets."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import stepset
from stepset.html.escaped import escaped

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("home")]

TOKEN = "tok-s3cr3t-value"
SECRET = {"TOKEN": {"secret": "hub", "key": "token"}}
HOSTILE = "<script>alert(1)</script>"


def _fails() -> Callable[[str], None]:
    """Returns a function of another function, of which only the source is shipped."""

    def fail(line: str) -> None:
        import os
        import time

        rank = int(os.environ["STEPSET_NODE_RANK"])
        if rank == 1:
            print(line, flush=True)
            raise ValueError(f"rank {rank} read a negative batch size")
        time.sleep(600)

    return fail


def _prints_its_token() -> Callable[[bool], dict[str, str]]:
    def log_in(fail: bool) -> dict[str, str]:
        import json
        import os

        token = os.environ["TOKEN"]
        report = {"step": 1, "metrics": {f"loss {token}": 1.0}}
        print(json.dumps({"stepset": report}), flush=True)
        print(f"login with {token}", flush=True)
        if fail:
            raise ValueError(f"the server rejects {token}")
        return {"token": token}

    return log_in


def _failure(line: str) -> stepset.TrainingFailedError:
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_fails(), framework="plain", num_nodes=2, args=[line])
    return caught.value


def test_the_html_of_the_exception_shows_the_lines_of_the_rank_that_failed() -> None:
    error = _failure("batch size -3")
    assert error.failure is not None
    assert error.failure.rank == 1
    assert str(error).startswith(f"run {error.status.name} failed")
    shown = error._repr_html_()
    assert shown == error.status._repr_html_()
    assert "batch size -3" in shown
    assert "ValueError: rank 1 read a negative batch size" in shown
    call = f"stepset.logs({error.status.name!r}, ranks=1)"
    assert f'<th>logs</th><td class="text">{escaped(call)}</td>' in shown
    assert '<th>see</th><td class="text">!stepset failures UserError</td>' in shown
    states = [row.state for row in error.status.ranks]
    assert shown.count("<td>rank ") == len(states) == 2
    assert shown.index("<td>rank 1") < shown.index("<td>rank 0"), "the failed rank is the first row"


def test_a_hostile_line_is_shown_as_text() -> None:
    shown = _failure(f"{HOSTILE}\x1b[2J\u202e")._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert not any(text in shown for text in ("<script", "\x1b", "\u202e"))


def test_values_of_secrets_are_not_in_the_html_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", TOKEN)
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_prints_its_token(), framework="plain", args=[True], env=SECRET)
    shown = caught.value._repr_html_()
    assert "login with ***" in shown
    assert "the server rejects ***" in shown
    assert TOKEN not in shown
    assert TOKEN not in str(caught.value)
    assert TOKEN not in stepset.diagnose(caught.value.status.name)


def test_values_of_secrets_are_not_in_the_html_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", TOKEN)
    status = stepset.run(_prints_its_token(), framework="plain", args=[False], env=SECRET)
    assert status.result == {"token": "***"}
    shown = status._repr_html_()
    assert "login with ***" in shown
    assert TOKEN not in shown


def _returns() -> Callable[[str], object]:
    def give(what: str) -> object:
        import threading

        return threading.Lock() if what == "object" else "x" * 5000

    return give


def test_a_result_that_is_too_large_names_the_remedy_and_whose_exit_code_is_shown() -> None:
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_returns(), framework="plain", args=["text"])
    shown = str(caught.value.status)
    assert "save it to storage, and use its path or URI as the result\n" in shown
    assert "first failure rank 0, pod node-0, on node 0, exit code 72 of stepset's agent\n" in shown
    [rank] = caught.value.status.ranks
    assert (rank.state, rank.exit_code) == ("Succeeded", 0)


def test_an_object_in_the_result_is_named_by_a_line_of_rank_0() -> None:
    status = stepset.run(_returns(), framework="plain", args=["object"])
    assert status.result is None
    assert any(note.endswith("or an object; a line of rank 0 names the type of the object") for note in status.notes)
    assert any("give() is of type lock, which JSON cannot express" in line.text for line in stepset.logs(status.name))


def _fails_in_a_library() -> Callable[[], None]:
    def train_bug() -> None:
        import copy
        import threading

        batch = threading.Lock()
        for _ in range(6):
            batch = [batch]
        loss = copy.deepcopy(batch)
        print(loss)

    return train_bug


def test_the_failure_contains_the_frame_of_the_function_above_many_frames_of_a_library() -> None:
    with pytest.raises(stepset.TrainingFailedError) as caught:
        stepset.run(_fails_in_a_library(), framework="plain")
    failure = caught.value.failure
    assert failure is not None
    assert not any("in train_bug" in line for line in failure.tail)
    assert re.search(r", line \d+, in train_bug: loss = copy\.deepcopy\(batch\)$", failure.frame)
    assert f"  frame         {failure.frame}" in str(caught.value.status)
    assert f"  frame         {failure.frame}" in caught.value.__notes__[0]
    assert escaped(failure.frame) in caught.value._repr_html_()
    assert stepset.status(caught.value.status.name).failure == failure
