"""What the tests must know about each target. A target without a module in this package fails the tests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from stepset.targets.workload_kinds import TARGET_NAMES
from tests.targets.cases.case import OwnField, TargetCase

CASES: Mapping[str, TargetCase] = {
    target: import_module(f"tests.targets.cases.{target}").CASE for target in TARGET_NAMES
}
OWN_FIELDS: Mapping[str, OwnField] = {path: each for case in CASES.values() for path, each in case.own_fields.items()}


def own_fields(section: str) -> dict[str, OwnField]:
    """Returns the fields in a section of the job file that only some targets have, such as scheduling.topology."""
    paths = {path: path.rpartition(".") for path in OWN_FIELDS}
    return {name: OWN_FIELDS[path] for path, (above, _, name) in paths.items() if above == section}
