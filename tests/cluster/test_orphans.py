"""A run with `on_orphan: stop` ends within a minute after its owner has ended for good, and never before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import yaml

from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.orphans.watcher import WATCHES
from stepset.backends.orphan_policy import OrphanStop, OwnerPod, WorkflowStep
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import Account, rbac
from tests.cluster.runs import ACCOUNT, Runs
from tests.cluster.testbed import outages
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice
from tests.waiting import until

pytestmark = pytest.mark.cluster

WITHIN = 60.0
"""Seconds within which a run without an owner must have ended."""
QUIET = 20.0
"""Seconds of watching, in which a watcher would stop a run twice."""
WORKFLOWS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workflows.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Workflow, plural: workflows, singular: workflow}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
STEP = "digits.root.train.executor"


@dataclass
class Orphans:
    """Runs with watchers in a namespace; the account has the Roles of `stepset rbac --with orphan`."""

    runs: Runs
    cluster: Cluster

    def grant(self) -> None:
        """Creates the Roles and the watchers' service account."""
        namespace = self.runs.namespace
        for each in rbac(
            "cli", targets=[self.runs.target], orphan=True, namespace=namespace, accounts=[Account(ACCOUNT)]
        ):
            self.cluster.objects.create(each, namespace, exist_ok=True)

    def submit(self, owner: OwnerPod | WorkflowStep, how: Literal["suspend", "delete"], run: str = "run") -> Any:
        """Creates a run that sleeps; returns the submission and its notes."""
        connection = connect(str(self.runs.kubeconfig))
        backend = KubernetesBackend(
            connection, namespace=self.runs.namespace, target=self.runs.target, change_pod=self._runnable
        )
        request = self.runs.request("import time\ntime.sleep(3600)", run=run, num_nodes=1)
        return backend.make(replace(request, orphan=OrphanStop(owner, how)))

    def _runnable(self, template: Any) -> Any:
        """Mounts this machine's Python in the watcher's pod, as the job does in the training pods."""
        if template["spec"]["containers"][0]["name"] != "watcher":
            return template
        return merge(template, self.cluster.pod_template("watcher"))

    def owner_pod(self, name: str = "owner") -> OwnerPod:
        """Starts a pod that runs until it is killed, and ignores SIGTERM."""
        spec = self.cluster.pod_spec(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.apply(pod, self.runs.namespace)
        self.cluster.wait(f"pod {name}", lambda: self.runs.get(f"pod/{name}")["status"].get("phase") == "Running")
        return OwnerPod(name, self.runs.get(f"pod/{name}")["metadata"]["uid"])

    def kill(self, name: str = "owner") -> None:
        """Removes a pod without the process in it being able to act."""
        self.cluster.kubectl("delete", "pod", name, "-n", self.runs.namespace, "--grace-period=0", "--force")

    def wait_until_watched(self, count: int = 1) -> None:
        def watching() -> bool:
            pods = [*self.runs.get("pods", WATCHES)["items"], *self.runs.pods()]
            return sum(each["status"].get("phase") == "Running" for each in pods) == 2 * count

        self.cluster.wait("the training and its watcher", watching, 300)

    def workload(self, run: str = "run") -> Any:
        """The run's workload; None if it does not exist or is being deleted."""
        kind = {"jobset": "jobsets", "statefulset": "statefulsets", "job": "jobs", "trainjob": "trainjobs"}
        found = {each["metadata"]["name"]: each for each in self.runs.get(kind[self.runs.target])["items"]}
        return found.get(run) if run in found and not found[run]["metadata"].get("deletionTimestamp") else None

    def continues(self, run: str = "run") -> bool:
        workload = self.workload(run)
        return workload is not None and not workload["spec"].get("suspend") and workload["spec"].get("replicas") != 0

    def ends(self, run: str = "run") -> float:
        """Waits until the run is stopped; returns the seconds until then."""
        begin = time.monotonic()
        assert until(lambda: not self.continues(run), WITHIN, 0.2), self.logs()
        return time.monotonic() - begin

    def logs(self) -> str:
        names = [each["metadata"]["name"] for each in self.runs.get("pods", WATCHES)["items"]]
        return "\n".join(self.cluster.logs(name, self.runs.namespace) for name in names)

    def stays(self, condition: Callable[[], bool], seconds: float = QUIET) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not condition():
                return False
            time.sleep(1)
        return True


@pytest.fixture
def orphans(runs: Runs, cluster: Cluster) -> Orphans:
    return Orphans(runs, cluster)


@pytest.mark.parametrize("runs", ["jobset", "statefulset", "job"], indirect=True)
def test_a_run_is_stopped_within_a_minute_after_its_owners_pod_was_removed_by_force(orphans: Orphans) -> None:
    orphans.grant()
    _, notes = orphans.submit(orphans.owner_pod(), "suspend")
    assert not any("on_orphan" in note for note in notes), notes
    orphans.wait_until_watched()
    assert orphans.stays(orphans.continues), "the owner lives"
    orphans.kill()
    orphans.ends()
    workload = orphans.workload()
    assert workload["metadata"]["annotations"]["stepset.dev/orphaned"] == "its pod does not exist"
    orphans.cluster.wait("the end of the training pods", lambda: not orphans.runs.pods())


def test_a_run_is_deleted_with_its_watcher_if_its_interface_deletes_runs(orphans: Orphans) -> None:
    orphans.grant()
    orphans.submit(orphans.owner_pod(), "delete")
    orphans.wait_until_watched()
    orphans.kill()
    orphans.ends()
    orphans.runs.wait_nothing_left()


def test_a_watcher_without_rights_and_a_missing_watcher_stop_nothing_and_the_note_names_the_command(
    orphans: Orphans,
) -> None:
    owner = orphans.owner_pod()
    _, notes = orphans.submit(owner, "delete")
    (note,) = [each for each in notes if each.startswith("on_orphan: stop is not available")]
    words = "--namespace " + orphans.runs.namespace + " --target jobset --with orphan"
    assert f"have an administrator run: stepset rbac {words} --account" in note
    orphans.kill()
    assert orphans.stays(orphans.continues)


@pytest.fixture
def workflows(cluster: Cluster, testbed_choice: Choice) -> None:
    cluster.kubectl("apply", "-f", "-", text=WORKFLOWS)
    cluster.kubectl("wait", "--for=condition=Established", "crd/workflows.argoproj.io", "--timeout=60s")


def put_workflow(orphans: Orphans, nodes: dict[str, tuple[str, str]], phase: str = "Running") -> WorkflowStep:
    """Writes a Workflow as Argo does; `nodes` are name -> (type, phase)."""
    rows = {str(n): {"name": name, "type": kind, "phase": it} for n, (name, (kind, it)) in enumerate(nodes.items())}
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "digits"},
        "status": {"phase": phase, "nodes": rows},
    }
    text = yaml.safe_dump(workflow)
    orphans.cluster.kubectl("apply", "-n", orphans.runs.namespace, "-f", "-", text=text)
    return WorkflowStep("digits", orphans.runs.get("workflow/digits")["metadata"]["uid"], STEP)


def test_a_step_that_is_retried_stops_nothing_and_a_step_that_has_ended_for_good_suspends_its_run(
    orphans: Orphans, workflows: None
) -> None:
    first, second = "digits(0).root(0).train(0).executor(0)", "digits(0).root(0).train(1).executor(0)"
    level = {"digits(0).root(0).train": ("Retry", "Running")}
    orphans.grant()
    step = put_workflow(orphans, {**level, first: ("Pod", "Running")})
    orphans.submit(step, "suspend")
    orphans.wait_until_watched()
    put_workflow(orphans, {**level, first: ("Pod", "Error")})
    assert orphans.stays(orphans.continues), "Argo may retry the level above"
    put_workflow(orphans, {**level, first: ("Pod", "Error"), second: ("Pod", "Running")})
    assert orphans.stays(orphans.continues, 12), "the next try runs"
    put_workflow(
        orphans, {"digits(0).root(0).train": ("Retry", "Error"), first: ("Pod", "Error"), second: ("Pod", "Error")}
    )
    orphans.ends()
    reason = f"its step {STEP} is Error"
    assert orphans.workload()["metadata"]["annotations"]["stepset.dev/orphaned"] == reason


@pytest.mark.disruptive
def test_a_run_continues_while_the_api_server_is_down_and_is_stopped_afterwards(
    orphans: Orphans, testbed_choice: Choice
) -> None:
    orphans.grant()
    orphans.submit(orphans.owner_pod(), "suspend")
    orphans.wait_until_watched()
    outages.stop(outages.API_SERVER)
    time.sleep(60)
    outages.start(testbed_choice, outages.API_SERVER)
    assert orphans.stays(orphans.continues)
    orphans.kill()
    orphans.ends()


def test_twenty_runs_are_stopped_within_a_minute_after_their_owner_was_removed(orphans: Orphans) -> None:
    orphans.grant()
    owner = orphans.owner_pod()
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        orphans.submit(owner, "suspend", name)
    orphans.wait_until_watched(len(names))
    begin = time.monotonic()
    orphans.kill()
    ended: dict[str, float] = {}

    def all_ended() -> bool:
        found = {each["metadata"]["name"]: each for each in orphans.runs.get("jobsets")["items"]}
        for name in names:
            if found[name]["spec"].get("suspend"):
                ended.setdefault(name, time.monotonic() - begin)
        return len(ended) == len(names)

    assert until(all_ended, WITHIN, 0.3), f"{len(ended)} of {len(names)} are stopped"
    print("seconds:", sorted(round(each, 1) for each in ended.values()))
