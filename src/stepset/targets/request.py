"""What a target is asked to render: everything it may look at, in one frozen value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stepset.errors import BadInputError

if TYPE_CHECKING:  # whoever reads runs needs the targets' names, and not pydantic
    from stepset.plan.model import LaunchPlan
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob

TARGET_NAMES = ("jobset", "trainjob", "statefulset", "job", "volcano")


def check_target(name: str) -> None:
    """Raises BadInputError unless there is a target of that name."""
    if name not in TARGET_NAMES:
        raise BadInputError(f"target: {name!r} is not known; use one of {', '.join(TARGET_NAMES)}")


@dataclass(frozen=True)
class RenderRequest:
    """One run of a job, to be written as manifests.

    Args:
        job: what is asked for.
        plan: what every pod gets.
        sources: the job's script or code, read.
        agent: the agent's own text, which every pod gets by ConfigMap.
        run: the run's name: that of the JobSet, StatefulSet, ... and the start of every other name.
        namespace: written into the objects where given; else whoever applies them chooses it.
        owner: a hash of who asks (DAG, run, task; pipeline run, node), by which the same asker finds its run again.
        attempt: gang restarts before this run, when it continues an earlier one.
        owned_by: an ownerReference: the run's objects go when that object goes.
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

    @property
    def subdomain(self) -> str:
        """Name of the headless Service through which the pods find each other."""
        return self.job.network.subdomain or self.run

    @cached_property
    def spec_hash(self) -> str:
        """SHA-256 of what would run: two requests with the same hash run the same job."""
        job = json.dumps(self.job.to_dict(), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(job.encode())
        for part in (self.sources.script, self.sources.archive):
            digest.update(hashlib.sha256(part or b"").digest())
        return digest.hexdigest()
