"""Creates the rows of a status: one row per rank, and one row per pod without ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepset.plan.model import LAUNCHER, NODE
from stepset.run_status import RankStatus
from stepset.unstructured import integer
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.pods import Pod
from stepset.watch.cluster.terminations import RankPlacement, tails
from stepset.watch.lines import without_rank_mark
from stepset.watch.state.rank_states import FAILED, PENDING, RUNNING, STOPPED, SUCCEEDED
from stepset.watch.state.reports import PodReport, RankReport, Reports


def rows_of(
    pods: Sequence[Pod], objects: RunObjects, reports: Reports, placement: RankPlacement, stopped: frozenset[str]
) -> list[RankStatus]:
    """Returns the rows of the current attempt's pods. Ranks come first.

    Args:
        stopped: the names of the pods that were stopped on purpose.
    """
    last_lines = tails(pods)
    verdicts = {rank: failed for pod in pods for rank, failed in _verdict(pod)}
    rows: list[RankStatus] = []
    for pod in pods:
        report = reports.of(pod.uid)
        restarts = objects.attempt + objects.history.replaced(pod) + pod.restarts
        state = _state(pod, pod.name in stopped)
        ranks = _ranks(pod, report, placement)
        for rank in ranks:
            rows.append(_rank_row(rank, pod, report, verdicts.get(rank), state, restarts, last_lines))
        if not ranks or pod.group == LAUNCHER:
            code = None if pod.end is None or pod.end.init else pod.end.exit_code
            line = report.last_line(pod.source) or last_lines.get(pod.source, "")
            rows.append(RankStatus(pod.source, None, pod.name, pod.node, state, restarts, code, None, line))
    rows.sort(key=lambda row: (row.rank is None, row.rank or 0))
    return rows


def _ranks(pod: Pod, report: PodReport, placement: RankPlacement) -> Sequence[int]:
    """Returns the ranks of a pod. They are read from the pod's reports or from the plan.

    If both are missing, the rank is read from the pod's verdict.
    """
    planned = placement.ranks_of(pod)
    if report.ranks:
        elsewhere = {rank for rank in planned if placement.by_rank.get(rank, pod) is not pod}
        here = {rank for rank in report.ranks if placement.by_rank.get(rank) is pod}
        return sorted((set(planned) | here) - elsewhere)
    return planned or ([rank for rank, _ in _verdict(pod)] if pod.group == NODE else [])


def _verdict(pod: Pod) -> Sequence[tuple[int, Mapping[str, Any]]]:
    """Returns a sequence of one tuple: the rank in a pod's verdict, and this verdict.

    Returns an empty sequence if the pod has no verdict, or if the verdict contains no rank.
    """
    failed = pod.end.termination_message.failed if pod.end is not None else None
    rank = integer(failed, "rank") if failed is not None else None
    return [(rank, failed)] if failed is not None and rank is not None else []


def succeeded_rows(rows: Sequence[RankStatus]) -> list[RankStatus]:
    """Returns the rows of a run that has succeeded. The other pods were stopped after the ranks had succeeded."""
    done: dict[str, Any] = {"state": SUCCEEDED, "exit_code": None, "signal": None}
    return [replace(row, **done) if row.rank is not None and row.state in (RUNNING, STOPPED) else row for row in rows]


def _state(pod: Pod, stopped: bool) -> str:
    if pod.succeeded:
        return SUCCEEDED
    if pod.over:
        return STOPPED if stopped else FAILED
    return RUNNING if pod.running else PENDING


def _rank_row(
    rank: int,
    pod: Pod,
    report: PodReport,
    verdict: Mapping[str, Any] | None,
    state: str,
    restarts: int,
    last_lines: Mapping[str, str],
) -> RankStatus:
    source = f"rank {rank}"
    reported = report.ranks.get(rank, RankReport())
    code, number = _how_it_ended(pod, reported, verdict)
    restarts += max(0, reported.starts - 1)
    if code == 0:
        state = SUCCEEDED
    elif verdict is not None or ((code is not None or number is not None) and state in (PENDING, RUNNING)):
        state = FAILED
    elif state == FAILED and code is None and number is None and pod.end is not None and not pod.end.init:
        state = STOPPED  # the agent stopped the rank, because another rank failed
    line = without_rank_mark(source, report.last_line(source) or last_lines.get(source, ""))
    at = report.printed_at.get(source if pod.agent else pod.source)  # without an agent, the source is the pod
    return RankStatus(source, rank, pod.name, pod.node, state, restarts, code, number, line, at)


def _how_it_ended(pod: Pod, reported: RankReport, verdict: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Returns the exit code and the signal of a rank. Uses the most specific report that is available."""
    for event in (reported.ended, reported.failed, verdict):
        if event is not None:
            return integer(event, "exit_code"), integer(event, "signal")
    if pod.end is None or pod.end.init or _verdict(pod):
        return None, None  # the rank never ran, or the exit codes of the pod's other ranks are unknown
    return pod.end.exit_code, None
