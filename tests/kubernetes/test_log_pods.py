"""Whether a pod has a log, the sources of its lines, and whether more lines may follow."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.kubernetes.logs.pods import log_pod, may_hold

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0}}


def pod(
    state: dict[str, Any] | None = None,
    *,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    phase: str = "Running",
    policy: str = "Never",
    labels: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
) -> dict[str, Any]:
    reported = [{"name": "node", "state": state, "lastState": last or {}, "restartCount": restarts}] if state else []
    return {
        "metadata": {"uid": "u", "name": "run-node-0-3-x", "labels": {"stepset.dev/group": "node", **(labels or {})}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "proxy"}, {"name": "node", **(container or {})}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "proxy", "state": RUNNING}, *reported]},
    }


class TestALog:
    def test_is_that_of_the_container_with_the_command(self) -> None:
        assert log_pod(pod()).container == "node"

    @pytest.mark.parametrize(
        ("seen", "started"),
        [
            (pod(phase="Pending"), False),
            (pod({"waiting": {"reason": "ContainerCreating"}}), False),
            (pod(RUNNING), True),
            (pod(ENDED), True),
            (pod({"waiting": {"reason": "CrashLoopBackOff"}}, last=ENDED), True),
        ],
    )
    def test_exists_once_the_container_was_started(self, seen: dict[str, Any], started: bool) -> None:
        assert log_pod(seen).started is started

    @pytest.mark.parametrize(
        ("seen", "over"),
        [
            (pod(RUNNING), False),
            (pod(ENDED), True),  # another container may still run
            (pod(ENDED, phase="Succeeded"), True),
            (pod(ENDED, policy="Always"), False),
            (pod(ENDED, policy="OnFailure"), False),
            (pod(ENDED, policy="OnFailure", phase="Failed"), True),
            (pod(ENDED, container={"restartPolicy": "OnFailure"}), False),
            (pod(phase="Failed"), True),  # evicted before its container started
        ],
    )
    def test_is_over_when_nothing_starts_the_container_again(self, seen: dict[str, Any], over: bool) -> None:
        assert log_pod(seen).over is over

    def test_is_over_when_the_pod_is_deleted(self) -> None:
        assert log_pod(pod(RUNNING), deleted=True).over

    def test_has_heads_only_where_the_agent_runs(self) -> None:
        command = ["python3", "/stepset/agent/agent.py", "run"]
        assert log_pod(pod(container={"command": command})).agent
        assert not log_pod(pod(container={"command": ["python3", "train.py"]})).agent


class TestSources:
    NODE = log_pod(pod(labels={"batch.kubernetes.io/job-completion-index": "3"}))
    PREPARE = log_pod(pod(labels={"stepset.dev/group": "prepare"}))

    @pytest.mark.parametrize(
        ("source", "ranks", "held"),
        [
            ("rank 6", {"node": (0, 2)}, True),
            ("rank 7", {"node": (0, 2)}, True),
            ("rank 8", {"node": (0, 2)}, False),
            ("rank 5", {"node": (0, 2)}, False),
            ("rank 5", {}, True),  # the workload states no ranks
            ("node 3", {"node": (0, 2)}, True),
            ("node 2", {"node": (0, 2)}, False),
            ("launcher", {}, False),
        ],
    )
    def test_of_a_node_are_its_own_and_its_ranks(
        self, source: str, ranks: dict[str, tuple[int, int]], held: bool
    ) -> None:
        assert may_hold(self.NODE, frozenset({source}), ranks) is held

    def test_of_a_role_are_the_roles_only(self) -> None:
        assert may_hold(self.PREPARE, frozenset({self.PREPARE.source, "rank 0"}), {"node": (0, 2)})
        assert not may_hold(self.PREPARE, frozenset({"rank 0"}), {"node": (0, 2)})

    def test_may_be_all_or_none(self) -> None:
        assert may_hold(self.NODE, None, {})
        assert not may_hold(self.NODE, frozenset(), {})
