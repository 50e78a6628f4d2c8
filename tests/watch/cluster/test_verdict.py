"""The end of a run in an annotation is read as it was written, and has a bounded size."""

from __future__ import annotations

import json

import pytest

from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.verdict import LIMIT, verdict_of, verdict_text
from stepset.watch.state import Failure, FailureKind, Phase, RankStatus, RunStatus


def run(ranks: int, line: str = "") -> RunStatus:
    rows = tuple(
        RankStatus(f"rank {n}", n, f"run-node-0-{n}", state="Failed" if n == ranks - 1 else "Succeeded", last_line=line)
        for n in range(ranks)
    )
    failure = Failure(FailureKind.USER_ERROR, "rank 0 failed", "fix it", tail=(line,) * 20, aftermath=("rank 1",))
    return RunStatus("run", "job", "kubernetes", Phase.FAILED, ranks=rows, failure=failure)


def workload(text: str) -> dict[str, object]:
    return {"metadata": {"annotations": {VERDICT: text}}}


def test_a_verdict_is_read_as_it_was_written() -> None:
    status = run(4, "last line")
    assert verdict_of(workload(verdict_text(status))) == status


def test_a_verdict_of_many_ranks_keeps_those_that_failed_and_states_how_many_it_omits() -> None:
    text = verdict_text(run(8000, "x" * 10_000))
    assert len(text.encode()) <= LIMIT
    read = verdict_of(workload(text))
    assert read is not None and read.ranks[-1].rank == 7999
    assert read.notes == ("7936 of 8000 ranks are not shown",)


def test_a_verdict_has_cut_lines() -> None:
    read = verdict_of(workload(verdict_text(run(2, "x" * 10_000))))
    assert read is not None and read.failure is not None
    assert {len(line) for line in read.failure.tail} == {500}


UNFINISHED = json.dumps(RunStatus("run", "job", "kubernetes", Phase.RUNNING).to_dict())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", json.dumps({"name": 1, "phase": "Odd"}), "null", "[" * 100_000, UNFINISHED]
)
def test_an_invalid_verdict_is_none(text: str) -> None:
    assert verdict_of(workload(text)) is None
