"""How a plan's places read inside pods of a JobSet, and wherever a plan is shown without a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from stepset.plan.model import LaunchPlan
from stepset.plan.values import (
    Attempt,
    CodePath,
    FirstNode,
    LocalRank,
    MountedFile,
    NodeRank,
    Part,
    PodHost,
    PortNumber,
    ProcessRank,
    ResultFile,
    RunName,
)

CODE_DIR = "/stepset/code"
RESULT_FILE = "/stepset/run/result"
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True)
class PodNames:
    """Fills in a plan's places as the pods of a JobSet see them.

    Args:
        plan: the plan.
        run: the run's name, which is the JobSet's.
        subdomain: the headless Service's name.

    Pod k of group g is `<run>-<g>-0-<k>.<subdomain>` (kubernetes-sigs/jobset v0.12.0, pkg/controllers).
    """

    plan: LaunchPlan
    run: str
    subdomain: str

    def __call__(self, part: Part) -> str:
        """The text of one place; ranks and the like as `<...>`, because no two pods share them."""
        match part:
            case PodHost(group, index):
                return f"{self.run}-{group}-0-{index}.{self.subdomain}"
            case PortNumber(name):
                return str(self.plan.ports[name])
            case CodePath(path):
                return f"{CODE_DIR}/{path}" if path else CODE_DIR
            case MountedFile(name):
                return next(f.path for f in self.plan.files if f.name == name)
            case ResultFile():
                return RESULT_FILE
            case RunName():
                return self.run
            case NodeRank():
                return "<pod index>"
            case ProcessRank():
                return "<rank>"
            case LocalRank():
                return "<local rank>"
            case FirstNode():
                return "<1 in pod 0, else 0>"
            case Attempt():
                return "<attempt>"
            case str():
                return part
        raise AssertionError(f"no such place: {part!r}")
