"""A run loses a node: its status names the node, the gang moves to other nodes if requested, and a node may recover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase, RunStatus
from tests.cluster.many import RESULT
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.stage import Stage, missing_lines
from tests.cluster.testbed import faults
from tests.cluster.testbed.layout import Choice, Node

# If both kubelets' heartbeats are late on busy cores, Kubernetes loses the other node, too.
pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

NodeFault = Callable[[Choice, Node], None]
RANKS = ("rank 0", "rank 1")
LEAVES_ATTEMPT = "if rank == 0: " + RESULT.format("attempt")
SOON: list[dict[str, Any]] = [
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
]
"""Kubernetes evicts the pods of an unreachable node after five minutes by default; the tests wait one second."""
MOVES = {"lost_node": "release", "lost_node_after": "2s"}


@pytest.fixture
def victim(testbed_choice: Choice) -> Node:
    """The node that is lost."""
    return testbed_choice.worker_nodes[-1]


def spread(run: str, tolerations: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Fields of a job whose pods run on different nodes if there are enough."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"stepset.dev/run": run}}}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    return {
        "run": run,
        "scheduling": {
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            "tolerations": SOON if tolerations is None else tolerations,
        },
        "pod_template": {"terminationGracePeriodSeconds": 1},
    }


def wait_spread(listener: RecordingListener) -> None:
    """Waits until both ranks print, on two nodes."""
    listener.wait_until(lambda: all(listener.texts(source) for source in RANKS), "lines of both ranks")
    assert len({row.node for row in listener.statuses[-1].ranks}) == 2


def last(listener: RecordingListener) -> RunStatus:
    return listener.statuses[-1]


def test_a_lost_node_is_named_and_the_run_waits_for_it_fails_after_a_timeout_or_moves(
    runs: Runs, testbed_choice: Choice, stage: Stage, victim: Node
) -> None:
    body = ("count_until('end')", LEAVES_ATTEMPT)
    waits, listener = runs.start(**stage.job(*body, **spread("waits")))
    patient, patient_listener = runs.start(**stage.job(*body, **spread("patient", [])))
    gives_up, last_listener = runs.start(**stage.job(*body, **spread("gives-up")), options={"startup_timeout": 5.0})
    moves, moving_listener = runs.start(**stage.job(*body, **spread("moves"), restart=MOVES))
    listeners = (listener, patient_listener, last_listener, moving_listener)
    for each in listeners:
        wait_spread(each)

    faults.stop_kubelet(testbed_choice, victim)
    for each in listeners:
        each.wait_until(lambda each=each: last(each).reason == "NodeLost", "the node's loss")
        trouble = last(each).trouble
        assert trouble is not None and (trouble.kind, trouble.node) == (FailureKind.INFRASTRUCTURE, victim.name)
        assert f"node {victim.name}" in trouble.message
    listener.wait_until(lambda: "is lost" in str(last(listener).trouble), "the loss of the pod")
    for command in ("status", "diagnose"):
        done = runs.cli(command, "waits")
        output = done.stdout + done.stderr
        assert "NodeLost" in output and f"node {victim.name} is lost" in output, output
    failure = gives_up.wait().failure
    assert failure is not None and (failure.kind, failure.node) == (FailureKind.INFRASTRUCTURE, victim.name)
    assert f"node {victim.name}" in failure.message and "gave up after 5 s" in failure.message
    assert runs.get("jobset/gives-up")["spec"]["suspend"] is True

    moving_listener.wait_until(lambda: is_again(moving_listener), "the restart")
    assert {row.node for row in last(moving_listener).ranks} == {testbed_choice.worker_nodes[0].name}
    assert (last(listener).phase, last(patient_listener).phase) == (Phase.RUNNING, Phase.RUNNING)

    faults.start_kubelet(testbed_choice, victim)
    patient_listener.wait_until(lambda: last(patient_listener).reason == "", "the node to be back")
    listener.wait_until(lambda: is_again(listener), "the restart")
    stage.say("end")
    assert outcome(patient.wait()) == (Phase.SUCCEEDED, 0)
    assert outcome(waits.wait()) == outcome(moves.wait()) == (Phase.SUCCEEDED, 1)
    assert [missing_lines(each.lines, source) for each in listeners for source in RANKS] == [""] * 8


@pytest.mark.parametrize(
    ("fault", "repair"),
    [(faults.cut_network, faults.join_network), (faults.power_off, faults.start_kubelet)],
    ids=["network", "power"],
)
def test_a_gang_that_lost_a_node_restarts_on_other_nodes_or_when_the_node_is_back(
    runs: Runs, testbed_choice: Choice, stage: Stage, victim: Node, fault: NodeFault, repair: NodeFault
) -> None:
    body = ("count_until('end')", LEAVES_ATTEMPT)
    moves, listener = runs.start(**stage.job(*body, **spread("moves"), restart=MOVES))
    waits, waiting_listener = runs.start(**stage.job(*body, **spread("waits")))
    for each in (listener, waiting_listener):
        wait_spread(each)
    fault(testbed_choice, victim)
    listener.wait_until(lambda: is_again(listener), "the restart")
    assert {row.node for row in last(listener).ranks} == {testbed_choice.worker_nodes[0].name}
    assert (last(waiting_listener).phase, last(waiting_listener).reason) == (Phase.RUNNING, "NodeLost")
    repair(testbed_choice, victim)
    waiting_listener.wait_until(lambda: is_again(waiting_listener), "the restart")
    stage.say("end")
    for handle in (moves, waits):
        status = handle.wait()
        assert outcome(status) == (Phase.SUCCEEDED, 1)
        assert any(victim.name in note for note in status.notes), status.notes
        run = runs.get(f"jobset/{status.name}")["status"]
        assert (run["restarts"], run.get("restartsCountTowardsMax", 0)) == (1, 0), "a disruption does not count"
    found = [missing_lines(each.lines, source) for each in (listener, waiting_listener) for source in RANKS]
    assert found == [""] * 4


def is_again(listener: RecordingListener) -> bool:
    """Whether the gang was restarted and runs."""
    return last(listener).attempt == 1 and last(listener).phase is Phase.RUNNING


def outcome(status: RunStatus) -> tuple[Phase, Any]:
    return status.phase, status.result
