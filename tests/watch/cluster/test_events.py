"""`Events` keeps the latest events and returns the relevant ones, one line each."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.watch.cluster.events import SHOWN, Events, read_event


def event(number: int, reason: str, message: str, **fields: Any) -> dict[str, Any]:
    at = f"2026-11-21T03:00:{number:02}Z"
    return {
        "metadata": {"uid": f"{reason}-{number}", "name": f"e{number}"},
        "involvedObject": {"kind": "Pod", "name": f"run-node-0-{number}", "uid": f"pod-{number}"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        **fields,
    }


def events(*each: dict[str, Any]) -> Events:
    found = Events()
    for one in each:
        found.add(read_event(one))
    return found


def lines(*each: dict[str, Any], **limits: float) -> tuple[str, ...]:
    return events(*each).relevant_lines(**{"since": 0.0, "until": 4e9, "created": 0.0, **limits}, started={})


class TestRelevantLines:
    def test_state_each_event_once_with_its_count_the_newest_last(self) -> None:
        assert lines(
            event(3, "FailedMount", "no such volume"),
            event(1, "FailedScheduling", "0/2 nodes", count=4),
            event(2, "FailedScheduling", "0/2 nodes"),
        ) == (
            "FailedScheduling (5 times), pod run-node-0-1 and 1 more: 0/2 nodes",
            "FailedMount, pod run-node-0-3: no such volume",
        )

    def test_are_the_latest_ones(self) -> None:
        found = lines(*(event(number, "Failed", f"reason {number}") for number in range(20)))
        assert len(found) == SHOWN and found[-1].endswith("reason 19")

    def test_omit_routine_events_and_repetitions_of_the_failure(self) -> None:
        assert (
            lines(
                event(1, "Started", "Started container node", type="Normal"),
                event(2, "BackOff", "Back-off restarting failed container"),
                event(3, "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
                event(4, "DefaultFailurePolicy", "applying RestartJobSet failure policy action"),
                event(5, "PodGroupPending", "PodGroup ns:run unschedule,reason: 2/0 tasks in gang unschedulable"),
                event(6, "Unschedulable", "0/0 tasks in gang unschedulable", involvedObject={"kind": "PodGroup"}),
            )
            == ()
        )

    def test_contain_an_unschedulable_pod(self) -> None:
        assert lines(event(1, "Unschedulable", "0/2 nodes")) == ("Unschedulable, pod run-node-0-1: 0/2 nodes",)

    def test_are_from_the_given_time_range(self) -> None:
        early, late = event(1, "Failed", "early"), event(50, "Failed", "late")
        at = read_event(late).last
        assert lines(early, late, since=at - 10) == ("Failed, pod run-node-0-50: late",)
        assert lines(early, late, until=at - 10) == ("Failed, pod run-node-0-1: early",)

    def test_omit_a_failed_creation_that_succeeded_later(self) -> None:
        refused = event(1, "FailedCreate", "exceeded quota")
        at = read_event(refused).last
        assert lines(refused, created=at + 5) == ()
        assert len(lines(refused, created=at - 5)) == 1

    def test_omit_a_failed_mount_of_a_pod_that_started_later(self) -> None:
        early, late = (event(number, "FailedMount", "no such ConfigMap") for number in (1, 9))
        start = read_event(early).last + 2
        both = events(early, late)
        assert both.relevant_lines(0.0, 4e9, 0.0, started={"pod-1": start}) == (
            "FailedMount, pod run-node-0-9: no such ConfigMap",
        )
        after = both.relevant_lines(0.0, 4e9, 0.0, started={"pod-9": start})
        assert len(after) == 1, "a mount that failed after the start"
        assert events(early).relevant_lines(0.0, 4e9, 0.0, started={"pod-1": start}) == ()

    def test_contain_events_without_a_valid_time(self) -> None:
        undated = event(1, "Failed", "x", firstTimestamp="soon", lastTimestamp="soon")
        mount = event(2, "FailedMount", "y", firstTimestamp=None, lastTimestamp=None)
        assert read_event(undated).last == read_event(mount).last == 0.0
        assert len(lines(undated, mount)) == 2


DUMP = (
    '&errors.StatusError{ErrStatus:v1.Status{TypeMeta:v1.TypeMeta{Kind:"", APIVersion:""},'
    ' ListMeta:v1.ListMeta{SelfLink:"", ResourceVersion:"", Continue:"", RemainingItemCount:(*int64)(nil)},'
    ' Status:"Failure", Message:"pods \\"run-node-%d\\" is forbidden: exceeded quota", Reason:"Forbidden",'
    " Details:(*v1.StatusDetails)(0x39bca719c060), Code:403}}"
)
"""How Volcano prints an error of the API server (volcano v1.10 pkg/controllers/job/job_controller_actions.go)."""


def test_an_error_of_the_api_server_that_volcano_dumps_is_its_message() -> None:
    one, two = (f"failed to create pod run-node-{index}, err: {DUMP % index}" for index in (0, 1))
    shown = 'failed to create pod run-node-{0}, err: pods "run-node-{0}" is forbidden: exceeded quota'
    found = read_event(event(1, "FailedCreate", f"Error creating pods: [{one} {two}]"))
    assert found.message == f"Error creating pods: [{shown.format(0)} {shown.format(1)}]"
    for cut in (200, 300, 360):
        message = read_event(event(1, "FailedCreate", f"{one[:cut]}")).message
        assert message.startswith("failed to create pod run-node-0, err: ")
    assert message == 'failed to create pod run-node-0, err: pods "run-node-0" is forbidden: exceeded quota'
    assert len(read_event(event(1, "FailedCreate", DUMP[:300] * 10_000)).message) <= 500


class TestEvents:
    def test_keep_only_the_latest(self) -> None:
        found = Events()
        for number in range(5000):
            seconds, at = divmod(number, 60)
            stamp = f"2026-11-21T{seconds // 60:02}:{seconds % 60:02}:{at:02}Z"
            found.add(read_event(event(number, "Failed", f"{number}", firstTimestamp=stamp, lastTimestamp=stamp)))
        kept = found.of(["Failed"])
        assert 300 <= len(kept) <= 400 and kept[-1].message == "4999"

    def test_of_the_newer_api_group_are_read(self) -> None:
        """events.k8s.io/v1, with a series of repeated events."""
        found = read_event(
            {
                "metadata": {"uid": "1"},
                "regarding": {"kind": "Pod", "name": "run-0", "uid": "2"},
                "type": "Warning",
                "reason": "FailedScheduling",
                "note": "0/2 nodes",
                "eventTime": "2026-11-21T03:00:00.123456Z",
                "series": {"count": 7, "lastObservedTime": "2026-11-21T03:00:09.000000Z"},
            }
        )
        assert (found.name, found.about, found.message, found.count) == ("run-0", "2", "0/2 nodes", 7)
        assert (found.first % 60, found.last % 60) == (pytest.approx(0.123456), 9.0)

    def test_report_whether_an_event_is_new_or_changed(self) -> None:
        found = events(event(1, "Failed", "x"))
        assert not found.add(read_event(event(1, "Failed", "x")))
        assert found.add(read_event(event(1, "Failed", "x", count=2)))
