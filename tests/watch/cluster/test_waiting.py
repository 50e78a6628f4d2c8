"""Why a run does not run yet, and what delays it: reasons and troubles with the cluster's messages."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from stepset.run_status import Failure, FailureKind, Phase
from stepset.watch.advice import CREATE_ADVICE, SELECTOR_ADVICE
from stepset.watch.cluster.kueue.unqueued import Unqueued
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change, decode_event
from stepset.watch.present.sentences import last_restart
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import final, phases, seen, stream, troubles

Kind = FailureKind

# scenario -> reason, kind, beginning of the message, part of the message
LASTING: dict[str, tuple[str, FailureKind, str, str]] = {
    "no_room": (
        "Unschedulable",
        Kind.UNSCHEDULABLE,
        "no node matches the node selector, affinity and tolerations of pod run-node-0-0-",
        "2 node(s) didn't match Pod's",
    ),
    "claim_missing": (
        "Unschedulable",
        Kind.UNSCHEDULABLE,
        "PersistentVolumeClaim nowhere does not exist, and pod run-node-0-0-",
        'persistentvolumeclaim "nowhere" not found',
    ),
    "no_image": ("PullingImage", Kind.IMAGE_PULL, "pod run-node-0-", "failed to resolve reference"),
    "image_never_pulled": (
        "PullingImage",
        Kind.IMAGE_PULL,
        "pod run-node-0-",
        'ErrImageNeverPull: Container image "registry.invalid/train:1" is not present with pull policy of Never',
    ),
    "image_misspelt": ("PullingImage", Kind.IMAGE_PULL, "pod run-node-0-", "repository name (Train) must be lowercase"),
    "pods_refused_by_policy": (
        "Starting",
        Kind.REJECTED,
        "Job run-node-0 cannot create its objects: ",
        'violates PodSecurity "restricted:latest"',
    ),
    "pods_refused_by_a_rule_of_the_clusters": (
        "Starting",
        Kind.REJECTED,
        "Job run-node-0 cannot create its objects: ",
        "denied request: every pod names its team",
    ),
    "service_account_missing": (
        "Starting",
        Kind.REJECTED,
        "Job run-node-0 cannot create its objects: ",
        'serviceaccount "nowhere" not found; create it: kubectl create serviceaccount nowhere -n ns',
    ),
    "statefulset_exceeds_a_quota": (
        "Unschedulable",
        Kind.UNSCHEDULABLE,
        "StatefulSet run cannot create its objects: ",
        "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1",
    ),
    "key_missing": ("Starting", Kind.REJECTED, "pod run-node-0-", "couldn't find key token in Secret "),
    "image_is_roots": ("Starting", Kind.REJECTED, "pod run-node-0-", "runAsNonRoot and image will run as root"),
    "volume_missing": ("Starting", Kind.REJECTED, "pod run-node-0-", 'configmap "nowhere" not found'),
    "trainjob_cannot_make_its_jobset": (
        "Starting",
        Kind.REJECTED,
        "TrainJob run cannot create its objects: ",
        "every JobSet names its team",
    ),
    "queue_missing": (
        "Queued",
        Kind.UNSCHEDULABLE,
        "the run waits in queue nowhere and cannot be",
        "nowhere doesn't exist; create",
    ),
}


@pytest.mark.parametrize("name", LASTING)
def test_a_run_that_cannot_start_is_pending_with_trouble(name: str) -> None:
    reason, kind, begin, inside = LASTING[name]
    status = final(name)
    assert (status.phase, status.reason, status.failure) == (Phase.PENDING, reason, None)
    assert status.trouble is not None
    assert (status.trouble.kind, status.trouble.message.count("\n")) == (kind, 0)
    assert status.trouble.message.startswith(begin) and inside in status.trouble.message


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("pods_refused_by_policy", "; set `security: restricted` in the job"),
        (
            "image_is_roots",
            "; use an image whose USER is a number other than 0, or set securityContext.runAsUser in pod_template",
        ),
    ],
)
def test_a_refusal_because_of_pod_security_ends_with_the_remedy(name: str, remedy: str) -> None:
    trouble = final(name).trouble
    assert trouble is not None and trouble.message.endswith(remedy)


def test_the_advice_about_a_missing_claim_is_to_create_it() -> None:
    """The scheduler reports a missing claim like missing resources."""
    advice = {name: trouble.advice for name in ("claim_missing", "no_room") if (trouble := final(name).trouble)}
    assert advice["claim_missing"] == CREATE_ADVICE
    assert advice["no_room"] == SELECTOR_ADVICE


def test_the_message_about_a_missing_claim_states_once_that_it_is_missing() -> None:
    trouble = final("claim_missing").trouble
    assert trouble is not None
    assert trouble.message.endswith('0/2 nodes are available: persistentvolumeclaim "nowhere" not found')


@pytest.mark.parametrize(
    ("reasons", "selected_out"),
    [
        ("2 node(s) didn't match Pod's node affinity/selector", True),
        ("1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)", True),
        ("1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector", False),
        ("2 Insufficient cpu", False),
        ("2 node(s) had untolerated taint {gpu: }", False),
    ],
)
def test_the_advice_about_labels_that_no_node_has_is_to_change_the_selector(reasons: str, selected_out: bool) -> None:
    """If a node with these labels has no room, the advice is to request less."""
    trouble = _unschedulable(f"{reasons}. preemption: 0/2 nodes are available: 2 Preemption is not helpful.")
    assert (trouble.advice == SELECTOR_ADVICE) is selected_out
    begin = "no node matches the node selector, affinity and tolerations of" if selected_out else "no room for"
    assert trouble.message.startswith(f"{begin} pod ")


class TestUnboundClaim:
    UNBOUND = "pod has unbound immediate PersistentVolumeClaims. not found"
    DATA = ({"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "emptyDir": {}})

    def test_is_named_with_the_command_that_shows_its_events(self) -> None:
        trouble = _unschedulable(self.UNBOUND, *self.DATA)
        assert trouble.kind is Kind.UNSCHEDULABLE
        assert trouble.message == (
            f"PersistentVolumeClaim data is Pending, and pod {trouble.pod} and 1 more cannot be scheduled:"
            " 0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims"
        )
        assert "(kubectl describe pvc data -n ns)" in trouble.advice

    @pytest.mark.parametrize(
        ("reasons", "unbound"),
        [
            ("2 node(s) didn't find available persistent volumes to bind", True),
            ("1 Insufficient cpu, 1 node(s) didn't find available persistent volumes to bind", False),
        ],
    )
    def test_may_be_bound_to_a_volume_of_a_node(self, reasons: str, unbound: bool) -> None:
        """With the binding mode WaitForFirstConsumer, the scheduler looks for a volume of each node."""
        assert ("PersistentVolumeClaim data is Pending" in _unschedulable(reasons, *self.DATA).message) is unbound

    def test_is_one_of_several(self) -> None:
        """The scheduler does not report which claim has no volume."""
        ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
        trouble = _unschedulable(self.UNBOUND, *self.DATA, ephemeral)
        scratch = f"{trouble.pod}-scratch"
        assert trouble.message.startswith(f"a PersistentVolumeClaim (one of data, {scratch}) is Pending, and pod ")
        assert f"(kubectl describe pvc data {scratch} -n ns)" in trouble.advice


def _unschedulable(reasons: str, *volumes: dict[str, Any]) -> Failure:
    """The trouble of a run whose pods have these volumes, and do not get a node for these reasons."""
    message = f"0/2 nodes are available: {reasons}"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status, objects = {"phase": "Pending", "conditions": [condition]}, RunObjects("run")
    for change in stream("no_room"):
        each = change.object
        if each["kind"] == "Pod":
            each = {**each, "spec": {**each["spec"], "volumes": list(volumes)}, "status": status}
        event = decode_event(json.dumps({"type": change.verb, "object": each}).encode())
        objects.see(Change(change.verb, event["object"]))
    trouble = status_of(objects, Reports(), 0.0).trouble
    assert trouble is not None
    return trouble


def test_the_trouble_with_an_image_names_the_secret_that_the_kubelet_cannot_read() -> None:
    changes = stream("no_image")
    pod = next(each.object for each in reversed(changes) if each.object["kind"] == "Pod")
    event = {
        "kind": "Event",
        "metadata": {"uid": "1", "name": "run.1"},
        "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
        "reason": "FailedToRetrieveImagePullSecret",
        "type": "Warning",
        "message": "Unable to retrieve some image pull secrets (regcred); attempting to pull may fail.",
    }
    trouble = status_of(seen([*changes, Change("ADDED", event)]), Reports(), 0.0).trouble
    assert trouble is not None
    assert trouble.message.endswith(
        "; the kubelet cannot read the imagePullSecret regcred: create it, or correct its name"
    )


class TestTroubleEnds:
    def test_when_a_quota_is_freed(self) -> None:
        words = [trouble.message for trouble in troubles("quota_exceeded_for_a_while")]
        assert words and all("exceeded quota: few" in each for each in words)
        assert phases("quota_exceeded_for_a_while") == [
            "Pending (Starting)",
            "Pending (Unschedulable)",
            "Pending (Starting)",
            "Running",
            "Succeeded",
        ]

    def test_when_a_secret_is_created(self) -> None:
        words = [trouble.message for trouble in troubles("secret_missing_for_a_while")]
        assert words and all('secret "hub" not found' in each for each in words)
        assert final("secret_missing_for_a_while").phase is Phase.SUCCEEDED

    @pytest.mark.parametrize("seconds", [0, 61])
    def test_when_an_object_that_a_webhook_rejected_is_created(self, seconds: int) -> None:
        """A webhook whose cache does not contain the JobSet yet rejects a Job that is created on the next attempt."""
        jobset = next(c for c in stream("jobset_fails") if c.object["kind"] == "JobSet")
        job = next(c for c in stream("jobset_fails") if c.object["kind"] == "Job")
        created = datetime.fromisoformat(job.object["metadata"]["creationTimestamp"])
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"uid": "1", "name": "run.1"},
            "involvedObject": {"kind": "JobSet", "name": "run", "uid": jobset.object["metadata"]["uid"]},
            "reason": "JobCreationFailed",
            "type": "Warning",
            "message": 'job "run-node-0" creation failed with error: admission webhook "mjob.kb.io" denied the request:'
            ' JobSet.jobset.x-k8s.io "run" not found',
            "firstTimestamp": f"{created - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}",
            "lastTimestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        }
        objects = seen([jobset, Change("ADDED", event)])
        trouble = status_of(objects, Reports(), 0.0).trouble
        if seconds == 0:
            assert trouble is None
            return
        assert trouble is not None and "denied the request" in trouble.message
        objects.see(job)
        assert status_of(objects, Reports(), 0.0).trouble is None


class TestKubeletWithoutTheVolumesYet:
    """The kubelet has received a pod, but not yet the ConfigMap that the pod names, and tries again."""

    NOT_YET = 'MountVolume.SetUp failed for volume "files" : failed to sync configmap cache: timed out'

    def objects(self, message: str, seconds: int = 0, ready_to_start: bool = False) -> RunObjects:
        changes = list(stream("volume_missing"))
        pods = {change.object["metadata"]["uid"]: change for change in changes if change.object["kind"] == "Pod"}
        about = next(iter(pods))
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"uid": "1", "name": "run.1"},
            "involvedObject": {"kind": "Pod", "name": pods[about].object["metadata"]["name"], "uid": about},
            "reason": "FailedMount",
            "type": "Warning",
            "message": message,
            "firstTimestamp": "2026-11-21T08:00:00Z",
            "lastTimestamp": f"2026-11-21T08:{seconds // 60:02}:{seconds % 60:02}Z",
        }
        others = [change for change in changes if change.object["kind"] != "Event"]
        return seen([*others, Change("ADDED", event), *([_with_sandbox(pods[about])] if ready_to_start else ())])

    def trouble(self, message: str, **how: Any) -> Failure | None:
        return status_of(self.objects(message, **how), Reports(), 0.0).trouble

    def test_is_trouble_only_if_it_lasts(self) -> None:
        assert self.trouble(self.NOT_YET) is None
        assert self.trouble(self.NOT_YET, seconds=59) is None
        trouble = self.trouble(self.NOT_YET, seconds=61)
        assert trouble is not None and trouble.kind is Kind.INFRASTRUCTURE

    @pytest.mark.parametrize("name", ["run-code", "run-agent"])
    def test_a_config_map_of_the_run_is_trouble_only_if_it_is_missing_for_a_minute(self, name: str) -> None:
        """A submission creates the ConfigMaps after the workload."""
        message = f'MountVolume.SetUp failed for volume "stepset-code" : configmap "{name}" not found'
        assert self.trouble(message) is None
        assert self.trouble(message, seconds=41) is None
        trouble = self.trouble(message, seconds=61)
        assert trouble is not None and trouble.kind is Kind.REJECTED
        assert trouble.message.startswith("the submission of the run is not complete, so pod run-node-0-")
        assert trouble.message.endswith(message) and "cancel the run, and run the job again" in trouble.advice

    def test_a_volume_that_is_not_attached_yet_is_infrastructure(self) -> None:
        trouble = self.trouble("Multi-Attach error for volume: it is already attached to another node")
        assert trouble is not None and trouble.kind is Kind.INFRASTRUCTURE

    def test_the_trouble_ends_when_the_pod_has_its_volumes(self) -> None:
        message = 'MountVolume.SetUp failed for volume "extra" : configmap "nowhere" not found'
        assert self.trouble(message) is not None
        assert self.trouble(message, ready_to_start=True) is None


def test_a_webhook_that_does_not_answer_is_infrastructure() -> None:
    changes = [change for change in stream("pods_refused_by_policy") if change.object["kind"] != "Event"]
    job = next(change.object for change in changes if change.object["kind"] == "Job")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"uid": "1", "name": "run.1"},
        "involvedObject": {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]},
        "reason": "FailedCreate",
        "type": "Warning",
        "message": 'Error creating: Internal error occurred: failed calling webhook "x": connection refused',
    }
    trouble = status_of(seen([*changes, Change("ADDED", event)]), Reports(), 0.0).trouble
    assert trouble is not None and trouble.kind is Kind.INFRASTRUCTURE


class TestSeveralPods:
    def test_with_the_same_trouble_are_reported_once(self) -> None:
        trouble = final("no_room").trouble
        assert trouble is not None
        assert f" of pod {trouble.pod} and 1 more: 0/2 nodes are available: " in trouble.message

    def test_are_pending_until_all_of_them_run(self) -> None:
        status = final("peers_do_not_resolve")
        assert (status.phase, status.reason) == (Phase.PENDING, "Unschedulable")
        assert sorted(row.state for row in status.ranks) == ["Pending", "Running"]


class TestImagePull:
    """No warning event reports a pull; it is inferred from a container that waits for nothing else."""

    def objects(self) -> RunObjects:
        changes = []
        for change in stream("jobset_succeeds"):
            waiting = change.object.get("status", {}).get("containerStatuses", [{}])[0].get("state", {}).get("waiting")
            if change.object["kind"] in ("JobSet", "Job") or waiting:
                changes.append(_with_sandbox(change) if waiting else change)
            if change.object["kind"] == "Pod" and not waiting and len(changes) > 4:
                break
        return seen(changes)

    def test_is_the_reason_after_some_seconds_but_not_trouble(self) -> None:
        objects = self.objects()
        early, late = (status_of(objects, Reports(), at) for at in (1_000_000_001.0, 1_000_000_010.0))
        assert (early.phase, early.reason) == (Phase.PENDING, "Starting")
        assert (late.phase, late.reason, late.trouble) == (Phase.PENDING, "PullingImage", None)


def _with_sandbox(change: Change) -> Change:
    """The pod with everything that it needs except the image."""
    status = dict(change.object["status"])
    others = [row for row in status["conditions"] if row["type"] != "PodReadyToStartContainers"]
    ready = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    return Change(change.verb, {**change.object, "status": {**status, "conditions": [*others, ready]}})


def _readmitted(change: Change, evicted: dict[str, str]) -> Change:
    """Adds the condition `Evicted` of an earlier eviction to Kueue's Workload."""
    if change.object["kind"] != "Workload" or "status" not in change.object:
        return change
    status = dict(change.object["status"])
    conditions = [*status.get("conditions", []), evicted]
    return Change(change.verb, {**change.object, "status": {**status, "conditions": conditions}})


class TestQueues:
    def test_a_run_in_a_queue_is_pending_and_not_suspended(self) -> None:
        assert phases("queued_and_let_in") == ["Pending (Queued)", "Pending (Starting)", "Running", "Succeeded"]

    def test_the_trouble_contains_the_queues_message(self) -> None:
        assert any("insufficient quota for cpu" in trouble.message for trouble in troubles("queued_and_let_in"))

    def test_an_evicted_run_is_queued_again(self) -> None:
        found = phases("sent_back_into_the_queue")
        assert found[-1] == "Pending (Queued)" and "Running" in found
        assert {row.state for row in final("sent_back_into_the_queue").ranks} == {"Stopped"}

    def test_a_run_that_is_admitted_again_states_why_it_was_evicted(self) -> None:
        """Kueue keeps the reason in the condition (kueue v0.18.2 pkg/workload/workload.go resetActiveCondition)."""
        why = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
        evicted = {"type": "Evicted", "status": "False", "reason": "QuotaReserved", "message": f"Previously: {why}"}
        found = [_readmitted(change, evicted) for change in stream("queued_and_let_in")]
        assert last_restart(status_of(seen(found), Reports(), 0.0)) == (
            "started again: Kueue had evicted the run: preempted by another workload due to prioritization in the"
            " ClusterQueue"
        )
        assert last_restart(final("queued_and_let_in")) == ""

    def without_place(self, unqueued: Unqueued | None) -> Failure | None:
        """The trouble of a suspended run for which Kueue has created no Workload."""
        objects = seen(c for c in stream("queued_and_let_in")[:1])
        objects.unqueued = unqueued
        status = status_of(objects, Reports(), 0.0)
        assert status.reason == "Queued"
        return status.trouble

    def test_a_queue_without_a_workload_is_trouble(self) -> None:
        assert self.without_place(None) is None, "Kueue may create the Workload soon"
        command = "stepset rbac --namespace ml --with priorities | kubectl apply -f -"
        trouble = self.without_place(Unqueued(True, unread=("PriorityClass high",), grant=command))
        assert trouble is not None and trouble.message == (
            "the run is suspended and has no place in queue team: check that PriorityClass high exists, and that Kueue"
            " manages JobSets in this cluster"
        )
        assert trouble.advice.startswith("If the class that the message names does not exist, create it, or use one")
        assert "; if it exists, have an administrator let Kueue manage this kind of workload, or" in trouble.advice
        assert trouble.advice.endswith(f"have an administrator run: {command}")
        trouble = self.without_place(Unqueued(True))
        assert trouble is not None and trouble.advice.startswith("Have an administrator let Kueue manage")

    def test_a_missing_priority_class_is_named(self) -> None:
        missing = "WorkloadPriorityClass 'nope' does not exist; none exists; create it"
        trouble = self.without_place(Unqueued(True, missing))
        assert trouble is not None and trouble.message.endswith(f"in queue team: {missing}")
        assert trouble.advice == CREATE_ADVICE

    def test_an_account_that_may_not_read_workloads_does_not_know_whether_the_run_is_queued(self) -> None:
        assert self.without_place(Unqueued(False, unread=("WorkloadPriorityClass high",))) is None
