"""A node dies under a run: who waits is told which, who wants it gets the gang elsewhere, and a node may come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepset.watch.state import FailureKind, Phase, RunStatus
from tests.cluster.many import RESULT
from tests.cluster.runs import Listening, Runs
from tests.cluster.stage import Stage, missing_lines
from tests.cluster.testbed import faults
from tests.cluster.testbed.layout import Choice, Node

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

NodeFault = Callable[[Choice, Node], None]
RANKS = ("rank 0", "rank 1")
LEAVES_ATTEMPT = "if rank == 0: " + RESULT.format("attempt")
SOON: list[dict[str, Any]] = [
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
]
"""Kubernetes waits five minutes before it gives a silent node's pods up; this is so that the tests need not."""
ELSEWHERE = {"lost_node": "release", "lost_node_after": "2s"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    path = tmp_path / "stage"
    path.mkdir()
    return Stage(path)


@pytest.fixture
def victim(testbed_choice: Choice) -> Node:
    """The node that is lost."""
    return testbed_choice.worker_nodes[-1]


def spread(run: str, tolerations: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Fields of a job whose pods stand on different nodes, as long as there are as many."""
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


def wait_spread(heard: Listening) -> None:
    """Until both ranks print, from two nodes."""
    heard.wait_until(lambda: all(heard.texts(source) for source in RANKS), "lines of both ranks")
    assert len({row.node for row in heard.statuses[-1].ranks}) == 2


def last(heard: Listening) -> RunStatus:
    return heard.statuses[-1]


def test_a_lost_node_is_named_and_whoever_waits_gives_up_or_goes_on_when_it_is_back(
    runs: Runs, testbed_choice: Choice, stage: Stage, victim: Node
) -> None:
    body = ("count_until('end')", LEAVES_ATTEMPT)
    waits, heard = runs.start(**stage.job(*body, **spread("waits")))
    patient, heard_patient = runs.start(**stage.job(*body, **spread("patient", [])))
    gives_up, heard_last = runs.start(**stage.job(*body, **spread("gives-up")), options={"startup_timeout": 5.0})
    moves, heard_moving = runs.start(**stage.job(*body, **spread("moves"), restart=ELSEWHERE))
    everybody = (heard, heard_patient, heard_last, heard_moving)
    for listening in everybody:
        wait_spread(listening)

    faults.stop_kubelet(testbed_choice, victim)
    for listening in everybody:
        listening.wait_until(lambda listening=listening: last(listening).reason == "NodeLost", "the node's loss")
        trouble = last(listening).trouble
        assert trouble is not None and (trouble.kind, trouble.node) == (FailureKind.INFRASTRUCTURE, victim.name)
        assert f"node {victim.name}" in trouble.message
    heard.wait_until(lambda: "is lost" in str(last(heard).trouble), "the pod to be overdue")
    for command in ("status", "diagnose"):
        asked = runs.cli(command, "waits")
        said = asked.stdout + asked.stderr
        assert "NodeLost" in said and f"node {victim.name} is lost" in said, said
    failure = gives_up.wait().failure
    assert failure is not None and (failure.kind, failure.node) == (FailureKind.INFRASTRUCTURE, victim.name)
    assert f"node {victim.name}" in failure.message and "gave up after 5 s" in failure.message
    assert runs.get("jobset/gives-up")["spec"]["suspend"] is True

    heard_moving.wait_until(lambda: is_again(heard_moving), "the restart")
    assert {row.node for row in last(heard_moving).ranks} == {testbed_choice.worker_nodes[0].name}
    assert (last(heard).phase, last(heard_patient).phase) == (Phase.RUNNING, Phase.RUNNING)

    faults.start_kubelet(testbed_choice, victim)
    heard_patient.wait_until(lambda: last(heard_patient).reason == "", "the node to be back")
    heard.wait_until(lambda: is_again(heard), "the restart")
    stage.say("end")
    assert outcome(patient.wait()) == (Phase.SUCCEEDED, 0)
    assert outcome(waits.wait()) == outcome(moves.wait()) == (Phase.SUCCEEDED, 1)
    assert [missing_lines(each.lines, source) for each in everybody for source in RANKS] == [""] * 8


@pytest.mark.parametrize(
    ("fault", "mended"),
    [(faults.cut_network, faults.join_network), (faults.power_off, faults.start_kubelet)],
    ids=["network", "power"],
)
def test_a_gang_whose_node_has_lost_it_starts_again_elsewhere_or_when_the_node_is_back(
    runs: Runs, testbed_choice: Choice, stage: Stage, victim: Node, fault: NodeFault, mended: NodeFault
) -> None:
    body = ("count_until('end')", LEAVES_ATTEMPT)
    moves, heard = runs.start(**stage.job(*body, **spread("moves"), restart=ELSEWHERE))
    waits, heard_waiting = runs.start(**stage.job(*body, **spread("waits")))
    for listening in (heard, heard_waiting):
        wait_spread(listening)
    fault(testbed_choice, victim)
    heard.wait_until(lambda: is_again(heard), "the restart")
    assert {row.node for row in last(heard).ranks} == {testbed_choice.worker_nodes[0].name}
    assert (last(heard_waiting).phase, last(heard_waiting).reason) == (Phase.RUNNING, "NodeLost")
    mended(testbed_choice, victim)
    heard_waiting.wait_until(lambda: is_again(heard_waiting), "the restart")
    stage.say("end")
    for handle in (moves, waits):
        status = handle.wait()
        assert outcome(status) == (Phase.SUCCEEDED, 1)
        assert any(victim.name in note for note in status.notes), status.notes
        run = runs.get(f"jobset/{status.name}")["status"]
        assert (run["restarts"], run.get("restartsCountTowardsMax", 0)) == (1, 0), "a disruption is free"
    found = [missing_lines(each.lines, source) for each in (heard, heard_waiting) for source in RANKS]
    assert found == [""] * 4


def is_again(heard: Listening) -> bool:
    """Whether the gang has started again and runs."""
    return last(heard).attempt == 1 and last(heard).phase is Phase.RUNNING


def outcome(status: RunStatus) -> tuple[Phase, Any]:
    return status.phase, status.result
