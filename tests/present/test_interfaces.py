"""All interfaces show the same sentences about a recorded run in the same order, and no sentences of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RankStatus, RunStatus, Waiting
from stepset.watch.hangs.stalled import StalledRanks, with_hang, with_known_hang
from stepset.watch.lines import Splitter
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.records import ProgressReported, Record
from stepset.watch.present.sources import is_shown, prefix
from tests.present.interfaces import (
    LONGEST,
    WITH_PROGRESS,
    WITHOUT,
    Updates,
    everything,
    step_log_lines,
    task_log_lines,
    terminal_lines,
)
from tests.watch.cluster.streams import NAMES, statuses
from tests.watch.hangs.evidence import BACKWARD, SLEEP, done, flying, process, stalled

EVERY = {**WITH_PROGRESS, **WITHOUT}


def followed(name: str) -> list[RunStatus]:
    """The statuses of a recorded run as a listener receives them: of final ones only the last, which is complete."""
    every = statuses(name)
    return [status for status in every if not status.phase.final] + ([every[-1]] if every[-1].phase.final else [])


def records(run: Updates) -> Iterator[Record]:
    """The records of one presenter for a run."""
    presenter = Presenter()
    for each in run:
        if isinstance(each, RunStatus):
            yield from presenter.see(each, 0.0)


def sentences(run: Updates, progress: bool) -> list[str]:
    """The texts of `records`, with the diagnosis split into lines."""
    found = [each for each in records(run) if progress or not isinstance(each, ProgressReported)]
    return [line for each in found for line in each.lines]


def same(shown: list[str], expected: list[str]) -> None:
    """Compares sentences. The terminal shows no diagnosis of a cancelled run, because its user cancelled it."""
    if any(" was cancelled" in line for line in expected):
        expected = [line for line in expected if not line.startswith("  ")]
        shown = [line for line in shown if not line.startswith("  ")]
    assert shown == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("interface", EVERY)
def test_every_interface_shows_the_same_sentences(name: str, interface: str) -> None:
    run = followed(name)
    same(_cut(EVERY[interface](run), interface), _cut(sentences(run, progress=True), interface))


def _cut(lines: list[str], interface: str) -> list[str]:
    """The page's texts are of bounded length."""
    return [line[:LONGEST] for line in lines] if interface == "page" else lines


def training() -> Updates:
    """A recorded run with lines, progress and a place in a queue that changes, which its stream does not have."""
    found: list[RunStatus | LogLine] = []
    for status in followed("queued_and_let_in"):
        if status.waiting is not None:
            waited = sum(isinstance(each, RunStatus) and each.waiting is not None for each in found)
            position = None if not status.waiting.message else 3 if waited < 6 else 1
            found.append(status.with_(waiting=replace(status.waiting, position=position, change="")))
        elif status.phase is Phase.RUNNING:
            found += [status.with_(progress=Progress(1, 0.1, {"loss": 2.5})), LogLine("rank 0", "epoch 1")]
        elif status.phase is Phase.SUCCEEDED:
            found.append(status.with_(progress=Progress(10, 1.0, {"loss": 0.25})))
        else:
            found.append(status)
    return found


TRAINING = [
    "run run: Pending (Queued), 2 ranks",
    "queued: the run waits in queue team at position 3: couldn't assign flavors to pod set node: insufficient quota for"
    " cpu in flavor ns, previously considered podsets requests (0) + current podset request (2) > maximum capacity (1)",
    "queued: now at position 1 in queue team",
    "run run: Pending (Starting), 2 ranks",
    "run run: Running, 2 ranks",
    "progress: 10 %, step 1, loss=2.5",
    "progress: 100 %, step 10, loss=0.25",
    "run run succeeded in 23 s",
]


@pytest.mark.parametrize("interface", EVERY)
def test_a_run_is_presented_from_the_queue_to_its_end(interface: str) -> None:
    shows_progress = interface in WITH_PROGRESS
    expected = [line for line in TRAINING if shows_progress or not line.startswith("progress: ")]
    assert EVERY[interface](training()) == expected


def hanging() -> Updates:
    """A run that hangs, makes progress for a moment, hangs with a busy rank, hangs again and exceeds its deadline."""
    pods = {"node-0": "0", "node-1": "1"}
    rows = tuple(RankStatus(f"rank {n}", n, f"node-{n}", f"node {n}", "Running") for n in (0, 1))
    runs = RunStatus("run", "run", "local", Phase.RUNNING, world_size=2, ranks=rows, progress=Progress(118))
    waits = stalled(0, process(BACKWARD), collectives=[flying()])
    busy = stalled(1, process(SLEEP, state="R", busy=True), collectives=[done()])
    ranks, found = StalledRanks(), [runs]
    for event in (waits, SLEEPS, {"event": "resumed", "at": 1.0}, busy, SLEEPS):
        line = f"[stepset] {json.dumps(event)}\n"
        ranks.see(str(event.get("rank", 1)), Splitter("node 0").feed(line.encode()))
        found.append(with_hang(runs, ranks.of(rows, pods)))
    late = Failure(FailureKind.DEADLINE_EXCEEDED, "the run took longer than its deadline of 1h.", "Wait longer.")
    failure = with_known_hang(late, found[-1].hang)
    return [*found, runs.with_(phase=Phase.FAILED, failure=failure, hang=found[-1].hang, created=0.0)]


SLEEPS = stalled(1, process(SLEEP, syscall=230), collectives=[done()])
HANG = [
    "no progress for 5 min 10 s (longest pause before: 12 s); last: step 118, all_reduce #1184",
    "  rank 0   waiting in all_reduce #1185 (nccl, float32, 4 MiB)   backward   train.py:42",
    "  rank 1   has not joined; sleeping in                          load       data.py:17    (node 1)",
    "  advice   data.py:17 on rank 1 blocks all other ranks. Full stacks: stepset stacks run",
]
HANGING = [
    "run run: Running, 2 ranks",
    "progress: step 118",
    *HANG,
    "no rank makes visible progress, but rank 1 in load (data.py:17) still works, and rank 0 waits in all_reduce"
    " #1185; stepset stacks run shows all stacks",
    "run run failed: DeadlineExceeded: the run took longer than its deadline of 1h; before, the run had made no"
    " progress for 5 min 10 s: rank 1 has not joined; sleeping in load data.py:17.",
    "  advice        data.py:17 on rank 1 blocks all other ranks.",
    "  see           stepset failures DeadlineExceeded",
]


@pytest.mark.parametrize("interface", EVERY)
def test_a_hang_is_presented_once_with_the_guilty_rank(interface: str) -> None:
    shows_progress = interface in WITH_PROGRESS
    expected = [line for line in HANGING if shows_progress or not line.startswith("progress: ")]
    assert EVERY[interface](hanging()) == expected


# scenario -> sentences that every interface shows, as patterns, in this order
WORDED: dict[str, tuple[str, ...]] = {
    "no_room": (
        r"run run: Pending \(Starting\), 2 ranks",
        r"run run: Pending \(Unschedulable\), 2 ranks",
        r"trouble: Unschedulable: no node matches the node selector, affinity and tolerations of pod"
        r" run-node-0-0-\w+: 0/2 nodes are available: .*"
        r" No machine has the labels that the job requires: compare node_selector and affinity of scheduling with"
        r" kubectl get nodes --show-labels, and change the job or the labels\.",
    ),
    "no_image": (
        r"run run: Pending \(PullingImage\), 2 ranks",
        r"trouble: ImagePull: pod run-node-0-\S+ on \S+ cannot get the image: ErrImagePull: .*"
        r" Check the image's name and tag, and that the cluster may pull it\.",
    ),
    "queue_missing": (
        r"run run: Pending \(Queued\), 2 ranks",
        r"queued: the run waits in queue nowhere and cannot be admitted without a change: LocalQueue nowhere doesn't"
        r" exist; create LocalQueue nowhere, or use a queue that `kubectl get localqueues` lists",
    ),
    "node_lost": (r"trouble: Infrastructure: node \S+ does not answer; .*",),
    "jobset_uses_up_its_restarts": (
        r"run run: Running, 2 ranks",
        r"restart 1: rank 1 \(pod \S+ on \S+\) exited with code 1: ValueError: attempt 0",
        r"run run: (Restarting|Running).*, 2 ranks, restart 1",
        r"run run failed after \d+ s: UserError: rank 1 \(pod .*\) exited with code 1: ValueError: attempt 1",
        r"  first failure rank 1, pod run-node-0-1-\w+, on \S+, exit code 1",
        r"  restarts      1 restart",
    ),
}


@pytest.mark.parametrize("name", WORDED)
@pytest.mark.parametrize("interface", EVERY)
def test_the_sentences_of_some_recorded_runs(name: str, interface: str) -> None:
    left = iter(EVERY[interface](followed(name)))
    for pattern in WORDED[name]:
        assert any(re.fullmatch(pattern, line) for line in left), pattern


def test_a_run_that_cannot_be_admitted_without_a_change_is_a_warning() -> None:
    levels = {
        record.text: record.level
        for updates in (followed("queue_missing"), training())
        for record in records(updates)
        if record.text.startswith("queued: ")
    }
    assert {level for text, level in levels.items() if "LocalQueue nowhere doesn't exist" in text} == {"warning"}
    assert {level for text, level in levels.items() if "insufficient quota" in text} == {"info"}


@pytest.mark.parametrize("interface", EVERY)
def test_a_known_position_is_shown(interface: str) -> None:
    waiting = Waiting("team", "Pending", "insufficient quota for cpu in flavor default", position=2)
    run = RunStatus("a-1", "a", "kubernetes", reason="Queued", world_size=8, waiting=waiting)
    assert EVERY[interface]([run]) == [
        "run a-1: Pending (Queued), 8 ranks",
        "queued: the run waits in queue team at position 2: insufficient quota for cpu in flavor default",
    ]


@pytest.mark.parametrize("ranks", [None, frozenset({0}), frozenset()], ids=["all", "one", "none"])
def test_every_interface_adds_the_same_prefix_to_the_ranks_lines(ranks: frozenset[int] | None) -> None:
    lines = [LogLine("rank 0", "a"), LogLine("rank 1", "b"), LogLine("launcher", "c")]
    wanted = [line for line in lines if is_shown(line.source, ranks)]
    expected = [f"{prefix(line.source)} {line.text}" for line in wanted]
    assert task_log_lines(lines, ranks) == step_log_lines(lines, ranks) == expected
    assert terminal_lines(wanted) == expected


FAILED_RUN = RunStatus("a-1", "a", "local", Phase.FAILED, world_size=2)
FAILED_LINES = [
    LogLine("rank 1", "[rank1]: ValueError: bad batch"),
    LogLine("node 0", "ChildFailedError", aftermath=True),
    LogLine("rank 0", "[rank0]: RuntimeError: Connection closed by peer", aftermath=True),
]
OMITTED = "omitted after the first failure: 2 lines of launchers and stopped ranks; stepset logs a-1 shows every line"


def test_every_interface_omits_the_lines_after_the_first_failure_and_torchs_mark() -> None:
    expected = ["[rank 1] ValueError: bad batch"]
    assert task_log_lines(FAILED_LINES, None) == step_log_lines(FAILED_LINES, None) == expected
    assert terminal_lines(FAILED_LINES) == expected


def test_every_interface_states_how_many_lines_it_omits() -> None:
    run = [*FAILED_LINES, FAILED_RUN]
    assert [line for line in everything(run, "terminal") if "omitted" in line] == [f"stepset: {OMITTED}"]
    assert [line for line in everything(run, "task log") if "omitted" in line] == [OMITTED]
    assert [line for line in everything(run, "step log") if "omitted" in line] == [f"stepset: {OMITTED}"]


def test_lines_that_log_ranks_leaves_out_are_not_counted_as_omitted() -> None:
    run = [*FAILED_LINES, FAILED_RUN]
    assert "omitted after the first failure: 1 line of" in "".join(everything(run, "task log", frozenset({1})))
