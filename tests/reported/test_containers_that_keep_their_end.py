"""A second container of `pod_template` that has work to do after the rank, such as an uploader.

A sidecar is stopped with the rank, and its failure was not visible.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.pod_changes import with_changed_pods
from stepset.errors import BadInputError
from stepset.rendering import render
from stepset.targets.explained_groups import explained_plan
from stepset.targets.notes import cluster_notes
from stepset.targets.pod_templates import templates_of
from stepset.watch.cluster.pods import read_pod
from tests.targets.making import of_kind, request
from tests.watch.cluster.streams import final

UPLOADER = {"name": "uploader", "image": "upload:1", "restartPolicy": "Never"}
EXPORTER = {"name": "exporter", "image": "export:1"}


def templates(target: str, *containers: dict[str, Any], **job: Any) -> list[Any]:
    objects = render(request(pod_template={"containers": list(containers)}, **job), target)
    return templates_of(of_kind(objects, "TrainingRuntime") if target == "trainjob" else objects[-1])


@pytest.mark.parametrize("target", ["jobset", "trainjob", "job", "volcano"])
def test_the_pod_waits_for_a_container_with_restart_policy_never(target: str) -> None:
    for template in templates(target, UPLOADER, EXPORTER):
        spec = template["spec"]
        assert [row["name"] for row in spec["containers"]] == ["node", "uploader"]
        assert spec["containers"][1] == {"name": "uploader", "image": "upload:1"}, "old servers reject the field"
        assert spec["restartPolicy"] == "Never"
        assert [row["name"] for row in spec["initContainers"]] == ["exporter"]


def test_a_pod_without_sidecars_has_no_init_containers() -> None:
    assert all("initContainers" not in each["spec"] for each in templates("jobset", UPLOADER))


def test_a_hook_of_the_installation_neither_changes_the_container_nor_needs_to_add_a_sidecar() -> None:
    def add(template: Manifest) -> Manifest:
        spec = template["spec"]
        added = [{"name": "logs", "image": "l"}, {"name": "report", "image": "r", "restartPolicy": "Never"}]
        return {**template, "spec": {**spec, "containers": [*spec["containers"], *added]}}

    workload = render(request(pod_template={"containers": [UPLOADER]}), "jobset")[-1]
    for template in templates_of(dict(with_changed_pods(workload, add))):
        assert [row["name"] for row in template["spec"]["containers"]] == ["node", "uploader", "report"]
        assert [row["name"] for row in template["spec"]["initContainers"]] == ["logs"]


def test_a_stateful_set_would_restart_it() -> None:
    with pytest.raises(BadInputError, match=r"containers\.uploader\.restartPolicy: a StatefulSet restarts every"):
        templates("statefulset", UPLOADER)


@pytest.mark.parametrize("whole", [False, True])
def test_validate_and_explain_state_that_a_container_is_a_sidecar(whole: bool) -> None:
    spec = {"containers": [{"name": "node", "tty": True}, EXPORTER, UPLOADER]}
    made = request(pod_template={"spec": spec} if whole else spec)
    for notes in (cluster_notes(made.job), explained_plan(made.job, made.plan).notes):
        [note] = [each for each in notes if "sidecar" in each]
        assert note.startswith(f"pod_template.{'spec.' if whole else ''}containers.exporter: is a sidecar")
        assert "restartPolicy: Never if the pod must wait for its end" in note
    stated = request(pod_template={"containers": [{**EXPORTER, "restartPolicy": "Always"}]})
    assert cluster_notes(stated.job) == ()


def test_the_status_has_a_note_for_each_failure_of_a_sidecar() -> None:
    """The recorded run has two sidecars: one fails at once, the other exits with 7 when it is stopped."""
    notes = [note for note in final("jobset_has_failing_sidecars").notes if "container" in note]
    assert [note.partition(": ")[2] for note in notes][:1] == [
        "container failing exited with code 5, and was restarted"
    ]
    assert any("container stopped ended with exit code 7" in note for note in notes)
    killed = final("ended_by_its_node_beside_a_sidecar").notes
    assert any("container exporter ended with exit code 137" in note for note in killed)


def _ended(name: str, code: int) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}


def test_the_failure_of_a_container_that_keeps_its_end_is_that_of_its_pod() -> None:
    data = {
        "metadata": {"name": "a-0", "uid": "1"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "node"}, {"name": "uploader"}]},
        "status": {"phase": "Failed", "containerStatuses": [_ended("node", 0), _ended("uploader", 3)]},
    }
    pod = read_pod(data, deleted=False)
    assert pod.end is not None and (pod.end.container, pod.end.exit_code) == ("uploader", 3)
    assert not pod.succeeded
    assert pod.beside == ("container uploader ended with exit code 3",)
    stopped = {
        **data,
        "status": {"phase": "Running", "containerStatuses": [_ended("node", 0), _ended("uploader", 143)]},
    }
    assert read_pod(stopped, deleted=False).beside == ()


def test_the_example_of_the_page_renders() -> None:
    import yaml

    page = (Path(__file__).resolve().parents[2] / "docs" / "targets.md").read_text()
    block = next(each for each in page.split("```yaml\n") if "name: uploader" in each).partition("```")[0]
    spec = render(request(pod_template=yaml.safe_load(block)["pod_template"]), "jobset")[-1]
    assert "uploader" in str(spec)
