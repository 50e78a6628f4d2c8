"""What a training prints occupies a bounded amount of memory in the processes that follow its run."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.lines import Joiner, Splitter
from stepset.watch.redacted_lines import RedactedLines
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import seen, stream

pytestmark = pytest.mark.exhaustive

MB = 1 << 20
_CHUNK = 64 * 1024


def heads() -> Iterator[str]:
    return (f"[rank {number}] x" for number in range(50_000))


def open_lines() -> Iterator[str]:
    return (f"[rank {number}+] {'x' * 1000}" for number in range(50_000))


def tiny_parts() -> Iterator[str]:
    return ("[rank 0+] x" for _ in range(600_000))


def ranks() -> Iterator[str]:
    return (f'[stepset] {{"event": "started", "rank": {number}}}' for number in range(50_000))


def large_events() -> Iterator[str]:
    event = {"event": "failed", "error": "e" * 200_000}
    return ("[stepset] " + json.dumps({**event, "rank": number}) for number in range(400))


def metrics() -> Iterator[str]:
    return (f'[rank 0] {{"stepset": {{"metrics": {{"name {number}": 1}}}}}}' for number in range(50_000))


def long_heads() -> Iterator[str]:
    return (f"{number} {'x' * 10_000}] x" for number in range(9_000))


def redacted_lines() -> Iterator[str]:
    event = {"event": "redacted", "text": "t" * 10_000}
    of_lines = ({**event, "source": "rank 0", "digest": f"{number}{'d' * 1000}"} for number in range(1000))
    of_sources = ({**event, "source": f"{number}{'s' * 10_000}", "digest": "d"} for number in range(5000))
    return ("[stepset] " + json.dumps(each) for events in (of_lines, of_sources) for each in events)


def redacted_lines_of_many_ranks() -> Iterator[str]:
    event = {"event": "redacted", "text": "\N{GRINNING FACE}" * 400}
    each = ({**event, "source": f"rank {n % 2048}", "digest": f"{n:032}"} for n in range(2048 * 40))
    return ("[stepset] " + json.dumps(row, ensure_ascii=False) for row in each)


def chunks(lines: Iterator[str]) -> Iterator[bytes]:
    rest = b""
    for line in lines:
        rest += line.encode() + b"\n"
        if len(rest) >= _CHUNK:
            yield rest
            rest = b""
    yield rest


@pytest.mark.parametrize(
    "lines", [heads, open_lines, tiny_parts, ranks, large_events, metrics, long_heads, redacted_lines]
)
def test_the_memory_of_a_follower_is_bounded_whatever_a_pod_prints(lines: Callable[[], Iterator[str]]) -> None:
    splitter, joiner, reports = Splitter("node 0"), Joiner(), Reports()
    tracemalloc.start()
    try:
        for chunk in chunks(lines()):
            batch = splitter.feed(chunk)
            reports.see("pod", batch)
            for _ in joiner.join(batch.lines):
                pass
        batch = None  # type: ignore[assignment]  # released before the memory is measured
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 32 * MB


def test_the_redacted_lines_of_a_pod_occupy_a_few_megabytes() -> None:
    splitter, redacted = Splitter("node 0"), RedactedLines()
    tracemalloc.start()
    try:
        for chunk in chunks(redacted_lines_of_many_ranks()):
            redacted.see(splitter.feed(chunk).events)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 8 * MB


def test_the_sources_of_all_pods_together_are_bounded() -> None:
    reports = Reports()
    for pod in range(20):
        reports.see(str(pod), Splitter("").feed("".join(f"[rank {n}] x\n" for n in range(3000)).encode()))
    kept = [len(reports.of(str(pod)).tails) for pod in range(20)]
    assert kept[0] == 2048 and sum(kept) == 16_384


def test_metrics_beyond_the_limit_are_left_out_and_reported_once() -> None:
    objects, reports, splitter = seen(stream("jobset_succeeds")), Reports(), Splitter("node 0")
    for chunk in chunks(metrics()):
        reports.see("pod", splitter.feed(chunk))
    status = status_of(_running(), reports, 0.0)
    assert status.progress is not None and len(status.progress.metrics) == 100
    assert [note for note in status.notes if "metrics" in note] == [
        "the run reports more than 100 metrics; the others are not kept"
    ]
    assert status_of(objects, reports, 0.0).phase.final


def _running() -> RunObjects:
    objects = RunObjects("run")
    for change in stream("jobset_succeeds"):
        objects.see(change)
        if status_of(objects, Reports(), 0.0).phase.value == "Running":
            break
    return objects
