"""The end of a run in an annotation is read as it was written, and has a bounded size."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepset.hang import CollectiveCall, Hang, HangGroup, HangKind, StackFrame
from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset.targets.metadata import VERDICT
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.verdict import LIMIT, verdict_text
from stepset.watch.cluster.workload import verdict_of
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import stream


def run(ranks: int, line: str = "") -> RunStatus:
    rows = tuple(
        RankStatus(f"rank {n}", n, f"run-node-0-{n}", state="Failed" if n == ranks - 1 else "Succeeded", last_line=line)
        for n in range(ranks)
    )
    failure = Failure(FailureKind.USER_ERROR, "rank 0 failed", "fix it", tail=(line,) * 20, aftermath=("rank 1",))
    return RunStatus("run", "job", "kubernetes", Phase.FAILED, ranks=rows, failure=failure)


def workload(text: str, ended: str = "Failed") -> dict[str, object]:
    status = {"conditions": [{"type": ended, "status": "True"}]}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": {"name": "run", "annotations": {VERDICT: text}}, "status": status}


def test_a_verdict_is_read_as_it_was_written() -> None:
    status = run(4, "last line")
    assert verdict_of(workload(verdict_text(status))) == status


def hang(*groups: HangGroup) -> Hang:
    return Hang(HangKind.NEVER_JOINED, 690.0, 310.0, 12.0, groups=groups)


def waits(ranks: int) -> HangGroup:
    return HangGroup(tuple(range(ranks)), "collective", collective=CollectiveCall("all_reduce", 7))


BLOCKS = HangGroup((9000, 9001, 9002), "sleeping", True, frame=StackFrame("load", "/app/data.py", 17), node="n")


def test_a_verdict_contains_the_hang() -> None:
    status = run(4).with_(hang=hang(waits(64), BLOCKS))
    assert verdict_of(workload(verdict_text(status))) == status


def test_a_verdict_of_many_ranks_keeps_those_that_blocked_the_others() -> None:
    read = verdict_of(workload(verdict_text(run(8000, "x" * 100).with_(hang=hang(waits(8000), BLOCKS)))))
    assert read is not None and read.hang == hang(BLOCKS)


@pytest.mark.parametrize("count", [1, 10_000])
def test_the_hang_of_a_verdict_has_all_ranks_of_each_place_or_is_omitted(count: int) -> None:
    blocks = replace(BLOCKS, ranks=tuple(range(count)))
    read = verdict_of(workload(verdict_text(BIG["notes"].with_(hang=hang(blocks)))))
    assert read is not None and read.hang == (hang(blocks) if count == 1 else None)


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


def test_a_verdict_has_a_cut_frame() -> None:
    status = run(2)
    assert status.failure is not None
    status = status.with_(failure=replace(status.failure, frame="f" * 10_000))
    read = verdict_of(workload(verdict_text(status)))
    assert read is not None and read.failure is not None and len(read.failure.frame) == 500


SMILES = "\U0001f600" * 5000
"""A text of which each character needs 12 bytes in ASCII."""
BIG = {
    "result": run(1).with_(result=["x" * 100] * 4000),
    "notes": run(1).with_(notes=("n" * 1000,) * 500),
    "metrics": run(1).with_(progress=Progress(metrics={SMILES[:200] + str(n): 1.0 for n in range(100)})),
    "lines": run(5000, SMILES),
    "names": run(1).with_(ranks=tuple(RankStatus("s" * 63, None, "p" * 253, "n" * 253) for _ in range(5000))),
    "everything": run(5000, SMILES).with_(result=SMILES, notes=(SMILES,) * 500),
}


@pytest.mark.parametrize("name", BIG)
def test_any_verdict_can_be_stored_and_read(name: str) -> None:
    text = verdict_text(BIG[name])
    assert text.isascii() and len(text) <= LIMIT
    read = verdict_of(workload(text))
    assert read is not None and read.failure is not None
    assert (read.phase, read.failure.kind) == (Phase.FAILED, FailureKind.USER_ERROR)


def test_a_result_that_cannot_be_stored_is_reported() -> None:
    read = verdict_of(workload(verdict_text(BIG["result"])))
    assert read is not None and read.result is None and read.notes == ("the result is too large to be shown",)


def hostile(text: str, count: int) -> RunStatus:
    """A status in which a training or another account has chosen every text, with `count` of each."""
    texts = (text,) * count
    failure = Failure(
        FailureKind.USER_ERROR, text, text, pod=text, error=text, tail=texts, events=texts, aftermath=texts
    )
    rows = tuple(RankStatus(f"rank {n}", n, text[:253], text[:253], "Failed", last_line=text) for n in range(count))
    progress = Progress(1, 0.5, {f"{n}{text}": 1.0 for n in range(count)})
    status = RunStatus("run", "job", "kubernetes", Phase.FAILED, failure=failure, ranks=rows, progress=progress)
    frame = StackFrame(text[:100], text[:200], 1)  # evidence.py limits these texts
    groups = tuple(HangGroup((n,), "lock", True, frame=frame, others=(frame,), why=text[:200]) for n in range(count))
    return status.with_(notes=texts, result={"text": text}, reason=text, hang=hang(*groups[:20]))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.sampled_from(["\x00", "\U0001f600", "\u202e", "x", '"', "\udc80"]), st.integers(0, 300_000), st.integers(0, 100)
)
@example("\U0001f600", 500, 100)
@example("\x00", 200_000, 20)
@example("x", 10_000, 5_000)
def test_no_status_exceeds_the_limit_of_annotations(char: str, length: int, count: int) -> None:
    text = verdict_text(hostile(char * length, min(count, 20_000_000 // max(1, length))))
    assert len(text.encode()) <= LIMIT
    read = verdict_of(workload(text))
    assert read is not None and read.failure is not None
    assert (read.name, read.phase, read.failure.kind) == ("run", Phase.FAILED, FailureKind.USER_ERROR)


UNFINISHED = json.dumps(RunStatus("run", "job", "kubernetes", Phase.RUNNING).to_dict())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", json.dumps({"name": 1, "phase": "Odd"}), "null", "[" * 100_000, UNFINISHED]
)
def test_an_invalid_verdict_is_none(text: str) -> None:
    assert verdict_of(workload(text)) is None


def test_a_stored_verdict_counts_from_the_success_of_the_jobs_on_if_it_agrees() -> None:
    objects = RunObjects("run")
    for change in stream("jobset_succeeds"):
        objects.see(change)
        found = status_of(objects, Reports(), 2e9)
        if found.phase.final:
            break
    assert objects.workload is not None and not objects.workload.ended
    other_process = found.with_(result={"stored": True})
    assert status_with(objects, other_process) == other_process
    assert status_with(objects, run(2)) == found, "a failure that the Jobs contradict"


def test_a_stored_success_of_a_running_run_does_not_count() -> None:
    objects = RunObjects("run")
    for change in stream("jobset_succeeds"):
        objects.see(change)
        if (found := status_of(objects, Reports(), 2e9)).phase is Phase.RUNNING:
            break
    assert status_with(objects, found.with_(phase=Phase.SUCCEEDED)) == found


def status_with(objects: RunObjects, stored: RunStatus) -> RunStatus:
    """The state of a run whose workload has the given verdict."""
    found = [each.object for each in stream("jobset_succeeds") if each.object["kind"] == "JobSet"]
    latest = next(each for each in reversed(found) if not each.get("status", {}).get("conditions"))
    meta = {**latest["metadata"], "annotations": {**latest["metadata"]["annotations"], VERDICT: verdict_text(stored)}}
    copy = deepcopy(objects)
    copy.see(Change("MODIFIED", {**latest, "metadata": meta}))
    return status_of(copy, Reports(), 2e9)
