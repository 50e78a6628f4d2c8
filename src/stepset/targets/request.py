"""The input of a target, in one frozen value."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError
from stepset.targets.shipped_files import ShippedFile, shipped_files

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.plan.model import LaunchPlan
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob

TARGET_NAMES = ("jobset", "trainjob", "statefulset", "job", "volcano")

_HASH_OF_NOTHING = hashlib.sha256().digest()


def check_target(name: str) -> None:
    """Raises BadInputError unless there is a target of that name."""
    if name not in TARGET_NAMES:
        raise BadInputError(f"target: {name!r} is not known; use one of {', '.join(TARGET_NAMES)}")


@dataclass(frozen=True)
class RenderRequest:
    """One run of a job, to be written as manifests."""

    job: TrainingJob
    plan: LaunchPlan
    sources: Sources  # the content of the job's script or code
    agent: str  # the agent's source
    run: str  # name of the run and its workload; prefix of the other names
    namespace: str | None = None  # if None, chosen when the objects are applied
    owner: str | None = None  # a hash of the caller (DAG, run, task; pipeline run, node), to find its run again
    attempt: int = 0  # gang restarts before this run, if it continues an earlier one
    owned_by: Mapping[str, Any] | None = None  # an ownerReference: the run is deleted with that object

    @property
    def subdomain(self) -> str:
        """Name of the headless Service through which the pods find each other."""
        return self.job.network.subdomain or self.run

    @cached_property
    def shipped(self) -> tuple[ShippedFile, ...]:
        """The job's files that are shipped one by one."""
        return shipped_files(self.job, self.sources)

    @cached_property
    def spec_hash(self) -> str:
        """SHA-256 of what would run: two requests with the same hash run the same job."""
        # Fields that the job does not set have their defaults. Without `include`, pydantic would create each default
        # to compare the field with it.
        job = self.job.model_dump_json(exclude_defaults=True, include=self.job.model_fields_set)
        digest = hashlib.sha256(job.encode())
        for part in (self.sources.script, self.sources.archive):
            digest.update(hashlib.sha256(part).digest() if part else _HASH_OF_NOTHING)
        return digest.hexdigest()
