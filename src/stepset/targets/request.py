"""The `RenderRequest`, which is the input of a target, and the names of the targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.targets.shipped_files import SingleFile, shipped_files
from stepset.targets.workload_kinds import TARGET_NAMES as TARGET_NAMES

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.plan.model import LaunchPlan
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob

_HASH_OF_NOTHING = hashlib.sha256().digest()


def check_target(name: str) -> None:
    """Raises BadInputError if there is no target with this name."""
    if name not in TARGET_NAMES:
        raise BadInputError(f"target: {name!r} is not known; use one of {', '.join(TARGET_NAMES)}")


@dataclass(frozen=True)
class RenderRequest:
    """A run of a job, and everything else that a target needs to render the run.

    Args:
        sources: the content of the job's script or code.
        agent: the source of the agent.
        run: the name of the run and of the workload. The names of all other objects begin with this name.
        namespace: the namespace of the objects. None if the manifests do not contain the namespace.
        owner: a hash that identifies the caller, such as a task of an Airflow DAG run or a node of a KFP run. The
            caller uses the hash to find the run again.
        attempt: the number of gang restarts before this run. The number is more than 0 if the run continues an earlier
            run.
        owned_by: an ownerReference to an object. When this object is deleted, Kubernetes also deletes the run.
        installer: the source of the program that installs the requirements. "" if the job has no requirements.
    """

    job: TrainingJob
    plan: LaunchPlan
    sources: Sources
    agent: str
    run: str
    namespace: str | None = None
    owner: str | None = None
    attempt: int = 0
    owned_by: Mapping[str, Any] | None = None
    installer: str = ""

    @property
    def subdomain(self) -> str:
        """The name of the headless Service, which is the subdomain of the pods' host names."""
        return self.job.network.subdomain or self.run

    @cached_property
    def shipped(self) -> tuple[SingleFile, ...]:
        """The files of the job that are separate entries of a ConfigMap."""
        return shipped_files(self.job, self.sources)

    @cached_property
    def spec_hash(self) -> str:
        """The SHA-256 hash of the job and of the job's sources. Requests with the same hash run the same job."""
        # `include` restricts the output to the fields that the job sets. This makes `exclude_defaults` faster, because
        # pydantic creates a default value for each field that it compares.
        job = self.job.model_dump_json(exclude_defaults=True, include=self.job.model_fields_set)
        digest = hashlib.sha256(job.encode())
        for part in (self.sources.script, self.sources.archive):
            digest.update(hashlib.sha256(part).digest() if part else _HASH_OF_NOTHING)
        return digest.hexdigest()
