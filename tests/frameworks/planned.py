"""A plan as its pods would read it. Used by the tests of each framework."""

from __future__ import annotations

from typing import Any

from stepset.frameworks import make_plan
from stepset.plan.model import LaunchPlan
from stepset.plan.values import Text, resolve
from stepset.spec import parse_job
from stepset.targets.names import PodNames


class Plan:
    """A job's plan with its places resolved as in a JobSet with the name `job`."""

    def __init__(self, framework: Any, **job: Any) -> None:
        entries = {"script", "module", "command", "function"}
        default = {} if entries & job.keys() else {"script": "train.py"}
        self.job = parse_job({"name": "job", "framework": framework, **default, **job})
        self.plan: LaunchPlan = make_plan(self.job)
        self.names = PodNames(self.plan, self.job.name, self.job.network.subdomain or self.job.name)

    def words(self, texts: tuple[Text, ...]) -> list[str]:
        return [resolve(text, self.names) for text in texts]

    def command(self, group: str = "node") -> list[str]:
        return self.words(self.plan.group(group).command)

    def env(self, group: str = "node") -> dict[str, str]:
        """Returns the group's variables with places resolved, without stepset's own."""
        entries = self.plan.group(group).env
        return {
            e.name: resolve(e.value, self.names)
            for e in entries
            if isinstance(e.value, Text) and not e.name.startswith("STEPSET_")
        }

    def in_manifest(self, name: str, group: str = "node") -> str | None:
        """Returns the value in the manifest for a variable that the agent sets."""
        [entry] = [e for e in self.plan.group(group).env if e.name == name]
        return None if entry.pod_value is None else resolve(entry.pod_value, self.names)  # type: ignore[arg-type]  # a Text

    def file(self) -> str:
        """Returns the plan's only file."""
        [file] = self.plan.files
        return "".join(line + "\n" for line in self.words(file.lines))
