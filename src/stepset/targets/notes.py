"""Notes about a job that runs on Kubernetes. The notes do not depend on the target."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from stepset.spec.environ import EnvText
from stepset.spec.job import TrainingJob
from stepset.spec.template import beside_node, writable_mounts
from stepset.targets.validation.restricted import ssh_port_notes
from stepset.targets.validation.volume_mounts import shared_memory_notes

_SECRET = re.compile(r"(?i)(?:^|_)(?:token|secret|password|passwd|api_?key|secret_(?:access_)?key)$")
"""Matches the names of variables whose values are secrets. `HF_TOKEN_PATH` and `TOKENIZERS_PARALLELISM` are not."""


def cluster_notes(job: TrainingJob) -> tuple[str, ...]:
    """Returns warnings about a valid job that is to run on a cluster. Each warning is one line.

    >>> cluster_notes(TrainingJob(script="train.py", checkpoint_dir="/ckpt/digits"))[0].partition("; ")[2]
    'add storage: [{path: /ckpt/digits, claim: NAME}]'
    """
    notes = (_secret_notes, _checkpoint_notes, shared_memory_notes, ssh_port_notes, container_notes)
    return tuple(chain.from_iterable(each(job) for each in notes))


def _secret_notes(job: TrainingJob) -> Iterator[str]:
    """Yields a note for each variable whose name is that of a secret, and whose value is in the job."""
    for name, value in job.env.items():
        if isinstance(value, EnvText) and value.value and _SECRET.search(name):
            yield (
                f"env.{name}: everyone who can read the pods of the run can read this value; store it in a Secret, and"
                " write {secret: NAME, key: KEY}"
            )


def checkpoint_notes(checkpoint_dir: str, volumes: Iterable[str]) -> Iterator[str]:
    """Yields a warning if a checkpoint directory is not on one of the volumes.

    Args:
        checkpoint_dir: the checkpoint directory of a job.
        volumes: the mount paths of the writable volumes that outlive the pods.
    """
    directory = posixpath.normpath(checkpoint_dir)
    if any(f"{directory}/".startswith(f"{posixpath.normpath(volume)}/") for volume in volumes):
        return
    yield (
        f"checkpoint_dir: {directory} is not on a writable volume that outlives the pods, so the checkpoints are lost"
        f" when a pod is replaced; add storage: [{{path: {directory}, claim: NAME}}]"
    )


def _checkpoint_notes(job: TrainingJob) -> Iterator[str]:
    if job.checkpoint_dir is not None:
        storage = (volume.path for volume in job.storage if not volume.read_only)
        yield from checkpoint_notes(job.checkpoint_dir, (*storage, *writable_mounts(job.pod_template, lasting=True)))


def container_notes(job: TrainingJob) -> Iterator[str]:
    """Yields a note about the end of each container beside the training container that has no `restartPolicy`."""
    for place, row in beside_node(job.pod_template):
        if "restartPolicy" not in row:
            yield (
                f"{place}: is a sidecar, which is restarted until the container 'node' has ended, and is then stopped,"
                " and whose failure does not fail the run; write restartPolicy: Never if the pod must wait for its end,"
                " or restartPolicy: Always if it is a sidecar"
            )
