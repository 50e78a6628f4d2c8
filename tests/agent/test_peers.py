"""The command starts when the names of all other pods resolve, or not at all."""

from __future__ import annotations

import signal

from stepset.agent.peers import peer_names
from tests.agent.pods import Pod

HERE = {"pattern": "localhost", "count": 1}
NOWHERE = {"pattern": "nope-{index}.invalid", "count": 2}


def test_the_command_starts_when_all_names_resolve(any_pod: Pod) -> None:
    ended = any_pod.run_ranks("echo started", peers=[HERE, {"pattern": "127.0.0.{index}", "count": 3}])
    assert ended.lines("rank 0") == [b"started"]
    assert ended.events("waiting") == []


def test_names_that_do_not_resolve_in_time_are_named(any_pod: Pod) -> None:
    ended = any_pod.run_ranks("echo started", peers=[HERE, NOWHERE], peer_timeout=3)
    assert ended.exit_code == 70
    assert ended.event("waiting")["missing"] == ["nope-0.invalid", "nope-1.invalid"]
    failure = ended.event("failed")
    assert (failure["kind"], failure["exit_code"]) == ("Rendezvous", 70)
    assert failure["error"].startswith("nope-0.invalid, nope-1.invalid did not resolve within 3 s (")
    assert "localhost" not in failure["error"]
    assert ended.verdict == failure.__class__({k: v for k, v in failure.items() if k != "event"})
    assert ended.lines("rank 0") == []


def test_an_invalid_host_name_is_reported(pod: Pod) -> None:
    ended = pod.run_ranks("true", peers=[{"pattern": "a..b", "count": 1}], peer_timeout=3)
    assert ended.exit_code == 70
    assert "not a host name" in ended.verdict["error"]


def test_in_a_large_group_only_the_first_pods_name_must_resolve() -> None:
    assert peer_names([{"pattern": "node-{index}", "count": 64}])[-1] == "node-63"
    assert peer_names([{"pattern": "node-{index}", "count": 65}]) == ["node-0"]


def test_a_stop_signal_ends_the_wait(pod: Pod) -> None:
    with pod.start("true", processes=1, peers=[NOWHERE], peer_timeout=1000) as running:
        running.wait_for_line(b'"waiting"')
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert ended.exit_code == 128 + signal.SIGTERM
        assert ended.events("failed") == ended.events("started") == []
        assert running.alive() == []


def test_the_lifeline_ends_the_wait(pod: Pod) -> None:
    with pod.start("true", processes=1, peers=[NOWHERE], peer_timeout=1000, lifeline=True) as running:
        running.wait_for_line(b'"waiting"')
        running.close_lifeline()
        assert running.end().exit_code == 128 + signal.SIGTERM
