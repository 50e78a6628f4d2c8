"""A step that is killed before it can act: its run continues while Argo may retry the step, and is stopped later."""

import time
from typing import Any

import pytest
import yaml

from stepset.targets.rbac import Account, rbac
from tests.cluster.testbed.layout import Choice
from tests.kfp.node_names import WORKFLOW, step_node
from tests.kfp.steps import ACCOUNT, WAITS, Steps
from tests.waiting import until

pytestmark = pytest.mark.cluster

WITHIN = 60.0
QUIET = 20.0
"""Seconds in which a watcher would stop a run twice."""
# The image of the test cluster contains no Python; steps and training pods mount this machine's.
PYTHON_OF_THIS_MACHINE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    objectSelector: {matchExpressions: [{key: stepset.dev/watches, operator: Exists}]}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >
          [JSONPatch{op: "add", path: "/spec/volumes/-",
            value: Object.spec.volumes{name: "usr", hostPath: Object.spec.volumes.hostPath{path: "/usr"}}},
           JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-",
            value: Object.spec.containers.volumeMounts{name: "usr", mountPath: "/usr", readOnly: true}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
"""


@pytest.fixture
def watched_steps(steps: Steps, testbed_choice: Choice) -> Any:
    """Steps whose account may create watchers, and watchers that run in the test cluster's image."""
    if testbed_choice.kubernetes == "1.35":
        pytest.skip("Kubernetes 1.35 has no MutatingAdmissionPolicy of version v1")
    granted = rbac("kfp", orphan=True, namespace=steps.namespace, accounts=[Account(ACCOUNT)])
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": granted})
    steps.cluster.kubectl("apply", "-n", steps.namespace, "-f", "-", text=text)
    steps.cluster.kubectl("apply", "-f", "-", text=PYTHON_OF_THIS_MACHINE.replace("NAME", steps.namespace))
    time.sleep(2)  # the API server loads policies asynchronously
    yield steps
    kinds = "mutatingadmissionpolicybinding,mutatingadmissionpolicy"
    steps.cluster.kubectl("delete", kinds, steps.namespace)


def write_nodes(steps: Steps, phase: str = "Running", **nodes: tuple[str, str, str]) -> None:
    """Writes the status of the Workflow as Argo does; the nodes are (name, type, phase)."""
    rows = {key: dict(zip(("name", "type", "phase"), node, strict=True)) for key, node in nodes.items()}
    patch = yaml.safe_dump({"status": {"phase": phase, "nodes": rows}})
    steps.cluster.kubectl("patch", "workflow", WORKFLOW, "-n", steps.namespace, "--type=merge", "-p", patch)


def kill(steps: Steps, pod: str) -> None:
    """Deletes a pod by force; Kubernetes still gives its processes a second or two."""
    steps.cluster.kubectl("delete", "pod", pod, "-n", steps.namespace, "--grace-period=0", "--force")


def suspended(steps: Steps) -> bool:
    (jobset,) = steps.jobsets()
    return bool(jobset["spec"].get("suspend"))


def watches(steps: Steps) -> bool:
    pods = steps.cluster.get("pods", steps.namespace, "stepset.dev/watches")["items"]
    return [each["status"].get("phase") for each in pods] == ["Running"]


def test_a_killed_step_is_retried_then_ends_for_good_and_a_retry_of_the_pipeline_resumes_its_run(
    watched_steps: Steps,
) -> None:
    steps, home = watched_steps, watched_steps.shared / "checkpoints"
    retry = ("digits-x7k2p(0).root(0).train(0).executor", "Retry", "Running")
    write_nodes(steps, retry=retry, first=(step_node(), "Pod", "Running"))
    given = {"checkpoint_dir": str(home), "on_interrupt": "leave", "on_orphan": "stop"}  # the step itself ends nothing
    first = steps.start(WAITS, **given)
    steps.wait_for_line(first, "begins from nothing")
    assert "on_orphan: stop is not available" not in steps.log(first)
    steps.cluster.wait("the watcher", lambda: watches(steps))

    kill(steps, first)
    write_nodes(steps, retry=retry, first=(step_node(), "Pod", "Error"))
    assert not until(lambda: suspended(steps), QUIET, 1.0), "Argo may retry the step"
    write_nodes(steps, first=(step_node(), "Pod", "Error"), second=(step_node(try_number=1), "Pod", "Running"))
    second = steps.start(WAITS, **given, node=step_node(try_number=1))
    steps.wait_for_line(second, "reattaching to it")

    kill(steps, second)
    write_nodes(steps, "Failed", first=(step_node(), "Pod", "Error"), second=(step_node(try_number=1), "Pod", "Error"))
    begin = time.monotonic()
    assert until(lambda: suspended(steps), WITHIN, 0.3)
    print(f"suspended after {time.monotonic() - begin:.1f} s")

    write_nodes(steps, first=(step_node(), "Pod", "Running"), second=(step_node(try_number=1), "Pod", "Running"))
    third = steps.start(WAITS, **given, node=step_node(try_number=2))
    steps.wait_for_line(third, "begins from checkpoint")
    assert not until(lambda: suspended(steps), QUIET, 1.0), "the pipeline was retried"
    (home / "go").touch()
    assert steps.wait(third) == 0, steps.log(third)


def test_a_step_without_the_rights_trains_and_notes_the_command_that_grants_them(steps: Steps) -> None:
    home = steps.shared / "checkpoints"
    home.mkdir()
    (home / "go").touch()
    pod = steps.start(WAITS, checkpoint_dir=str(home))
    assert steps.wait(pod) == 0, steps.log(pod)
    command = f"stepset rbac --backend kfp --namespace {steps.namespace} --target jobset --with orphan --account"
    assert f"have an administrator run: {command}" in steps.log(pod)
