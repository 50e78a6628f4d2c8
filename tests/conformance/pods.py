"""What the pods of a plan's group get, in the form of the reference data. Used by both conformance suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepset.frameworks import make_plan
from stepset.plan.model import EnvEntry, LaunchPlan, PodGroup
from stepset.plan.values import FieldValue, NodeRank, SecretValue, Text, Value, resolve
from stepset.spec import TrainingJob, parse_job
from stepset.targets.names import COMPLETION_INDEX, PodNames

DATA = Path(__file__).parent / "data"
Row = dict[str, Any]


def load_rows(file: str) -> tuple[dict[str, Row], list[str]]:
    """Returns (rows by name, names of the omitted rows) of a data file."""
    data = json.loads((DATA / file).read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in data["rows"]}
    assert len(rows) == len(data["rows"]), "two rows of one name"
    return rows, data["left_out"]


class Planned:
    """A job, its plan, and the plan's content in a JobSet's pods."""

    def __init__(self, **job: Any) -> None:
        self.job: TrainingJob = parse_job(job)
        self.plan: LaunchPlan = make_plan(self.job)
        self.names = PodNames(self.plan, self.job.name, self.job.network.subdomain or self.job.name)

    def group(self, name: str = "node") -> PodGroup:
        return self.plan.group(name)

    def words(self, texts: tuple[Text, ...]) -> list[str]:
        return [resolve(text, self.names) for text in texts]

    def env(self, group: str = "node") -> dict[str, Any]:
        """Returns a group's variables as in its manifest, without stepset's own (STEPSET_*)."""
        shown = ((entry.name, self._shown(entry)) for entry in self.group(group).env)
        return {name: value for name, value in shown if value is not None and not name.startswith("STEPSET_")}

    def _shown(self, entry: EnvEntry) -> Any:
        value: Value | None = entry.value
        if isinstance(value, Text) and value.needs_agent:
            value = entry.pod_value  # the agent sets the rest
        match value:
            case None:
                return None
            case Text((NodeRank(),)):
                return {"fieldRef": COMPLETION_INDEX}
            case Text():
                return resolve(value, self.names)
            case FieldValue(path):
                return {"fieldRef": path}
            case SecretValue(secret, key):
                return {"secretKeyRef": {"name": secret, "key": key}}

    def file(self, name: str) -> str:
        """Returns one of the plan's files, as in the pods."""
        found = next(f for f in self.plan.files if f.name == name)
        return "".join(line + "\n" for line in self.words(found.lines))
