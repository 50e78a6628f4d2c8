"""What `on_orphan` and `on_interrupt` mean for a step's run, and where its watcher runs."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.backends.orphan_policy import OrphanStop, WorkflowStep
from stepset_kfp.step.orphan import orphan_stop
from stepset_kfp.step.owner import Identity

STEP = WorkflowStep("digits-x7k2p", "w-1", "digits-x7k2p.root.train.executor")
OWNER = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": STEP.workflow, "uid": STEP.uid}
POD = {
    "spec": {
        "containers": [{"name": "wait", "image": "argoexec"}, {"name": "main", "image": "step:1"}],
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [],
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"name": "token", "projected": {}}],
    }
}
PLACE = {"image": "step:1", "imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"pool": "cpu"}}


def identity(namespace: str = "kubeflow", owned_by: Any = OWNER) -> Identity:
    return Identity("run", STEP.node, namespace, owned_by)


@pytest.mark.parametrize(
    ("on_orphan", "on_interrupt", "how"),
    [
        ("", "suspend", "suspend"),
        ("", "delete", "delete"),
        ("", "leave", None),
        ("stop", "leave", "suspend"),
        ("stop", "delete", "delete"),
        ("keep", "suspend", None),
        ("keep", "delete", None),
    ],
)
def test_the_run_is_ended_as_on_interrupt_says_unless_it_is_kept(
    on_orphan: str, on_interrupt: str, how: str | None
) -> None:
    given = {"on_orphan": on_orphan, "on_interrupt": on_interrupt}
    expected = None if how is None else OrphanStop(STEP, how, PLACE)  # type: ignore[arg-type]  # of a table
    assert orphan_stop(given, identity(), POD, "kubeflow") == (expected, "")


def test_pipelines_that_were_compiled_without_the_input_have_the_default() -> None:
    stop, _ = orphan_stop({"on_interrupt": "suspend"}, identity(), POD, "kubeflow")
    assert stop is not None


@pytest.mark.parametrize(
    ("who", "namespace"), [(identity(), "team"), (identity(owned_by=None), "kubeflow"), (None, "kubeflow")]
)
def test_a_note_states_that_the_run_continues_without_a_workflow_that_can_be_watched(
    who: Identity | None, namespace: str
) -> None:
    stop, note = orphan_stop({"on_orphan": "stop", "on_interrupt": "suspend"}, who, POD, namespace)
    assert stop is None
    assert note.startswith("on_orphan: stop is not available, the run continues when its owner has ended: ")


def test_a_step_outside_of_pods_has_no_note_unless_it_asks_to_be_watched() -> None:
    assert orphan_stop({"on_interrupt": "suspend"}, None, {}, "ml") == (None, "")
