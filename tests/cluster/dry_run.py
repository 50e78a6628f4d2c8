"""Sends a run's objects to the API server as a dry run, through the webhooks of JobSet, Trainer, Kueue and Volcano."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.cluster.api import Api, Manifest

VOLCANO = "batch.volcano.sh/v1alpha1"

FOREIGN = ("scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")
"""API versions that the test cluster does not serve, or only in the tests of Volcano."""


def refusals(api: Api, objects: list[Manifest]) -> list[str]:
    """Why the server refuses objects of a run, or pods that the controller would create for a JobSet or Volcano Job."""
    messages = []
    runtime = next((each for each in objects if each["kind"] == "TrainingRuntime"), None)
    if runtime is not None:
        messages.append(api.refused(runtime, dry_run=False))  # a TrainJob is refused without its runtime
    for each in objects:
        if each is not runtime and (each["apiVersion"] not in FOREIGN or api.serves(each["apiVersion"])):
            messages.append(_refused_with_runtime(api, each) if each["kind"] == "TrainJob" else api.refused(each))
        if each["kind"] == "JobSet":
            # JobSet's webhook checks pods only partly; the controller creates the Jobs later, without a user to notify.
            messages += [api.refused(job) for job in _jobs(each)]
        if each["apiVersion"] == VOLCANO:
            messages += [api.refused(job) for job in _jobs_of_tasks(each)]
    if runtime is not None:
        api.delete(runtime["apiVersion"], runtime["kind"], runtime["metadata"]["name"])
    return [each for each in messages if each is not None]


def _refused_with_runtime(api: Api, train_job: Manifest) -> str | None:
    """Retries while the runtime is not found: the webhooks get it from a watch, with a short delay."""
    for _ in range(50):
        message = api.refused(train_job)
        if message is None or "not found" not in message:
            break
        time.sleep(0.05)
    return message


def _jobs(jobset: Manifest) -> Iterator[Manifest]:
    for row in jobset["spec"]["replicatedJobs"]:
        name = f"{jobset['metadata']['name']}-{row['name']}-0"
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": row["template"]["spec"]}


def _jobs_of_tasks(volcano_job: Manifest) -> Iterator[Manifest]:
    """Jobs of Kubernetes with the pods of a Volcano Job: Volcano's webhook has the rules of an older Kubernetes."""
    for task in volcano_job["spec"]["tasks"]:
        about = {"name": f"{volcano_job['metadata']['name']}-{task['name']}"}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"template": task["template"]}}
