"""The descriptions of each target are complete, and agree with each other, the tests and the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes import stop
from stepset.backends.kubernetes.orphans import watch_owner
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.errors import BadInputError
from stepset.rendering import render
from stepset.targets.kinds import TARGETS
from stepset.targets.target_spec import TargetSpec
from stepset.targets.workload_kinds import (
    TARGET_LIST,
    TARGET_LIST_WITH_DEFAULT,
    TARGET_NAMES,
    WORKLOAD_KINDS,
    WorkloadKind,
)
from tests.targets.cases import CASES, OWN_FIELDS
from tests.targets.making import rendered, request

ROOT = Path(__file__).resolve().parents[2]
PARTS = [(TARGETS["jobset"], each.name) for each in fields(TargetSpec)]
PARTS += [(WORKLOAD_KINDS["jobset"], each.name) for each in fields(WorkloadKind)]
FURTHER = "from stepset.targets.workload_kinds import WORKLOAD_KINDS as kinds; kinds['swarm'] = kinds['job']"


def having(path: str, value: Any) -> dict[str, Any]:
    """Returns the fields of a job with a value at a path."""
    name, _, below = path.partition(".")
    return {name: having(below, value) if below else value}


@pytest.mark.parametrize(("whole", "missing"), PARTS)
def test_a_target_that_lacks_a_part_of_a_description_is_an_error(whole: Any, missing: str) -> None:
    parts = {each.name: getattr(whole, each.name) for each in fields(whole)}
    assert type(whole)(**parts) == whole
    with pytest.raises(TypeError, match=f"'{missing}'"):
        type(whole)(**{name: value for name, value in parts.items() if name != missing})


@pytest.mark.parametrize("module", ["stepset.targets.kinds", "stepset.watch.cluster.workload"])
def test_a_target_that_lacks_one_of_its_descriptions_is_an_error_at_import(module: str) -> None:
    words = [sys.executable, "-c", f"{FURTHER}; import {module}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"TypeError: a target .*\{'swarm'\}", done.stderr.splitlines()[-1])


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_tests_know_the_own_fields_of_a_target(target: str) -> None:
    assert set(TARGETS[target].own_fields) == set(CASES[target].own_fields)


@pytest.mark.parametrize("path", OWN_FIELDS)
def test_a_field_of_some_targets_is_rendered_by_them_and_refused_by_the_others(path: str) -> None:
    job = having(path, OWN_FIELDS[path].value)
    for target, case in CASES.items():
        if path in case.own_fields:
            assert case.own_fields[path].rendered(render(request(**job), target)) == OWN_FIELDS[path].value
        else:
            with pytest.raises(BadInputError, match=rf"^{re.escape(path)}: only a \w+ has it; leave it out, or use"):
                render(request(**job), target)


@pytest.mark.parametrize("path", OWN_FIELDS)
def test_an_invalid_value_of_a_field_of_some_targets_is_refused(path: str) -> None:
    value, start = OWN_FIELDS[path].refused
    target = next(name for name, case in CASES.items() if path in case.own_fields)
    with pytest.raises(BadInputError, match=rf"^{re.escape(f'{path}: {start}')}"):
        render(request(**having(path, value)), target)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_last_object_is_the_workload_and_the_pod_templates_are_where_the_description_states(target: str) -> None:
    kind, objects = WORKLOAD_KINDS[target], rendered(target)
    assert (objects[-1]["apiVersion"], objects[-1]["kind"]) == (kind.api.api_version, kind.api.kind)
    assert [each["kind"] for each in objects if each["kind"] != "ConfigMap"] == [*CASES[target].objects]
    assert kind.templates.kind in CASES[target].objects and ("Service" in CASES[target].objects) == kind.service


@pytest.mark.parametrize(
    ("target", "path", "field"), [(name, *each) for name, case in CASES.items() for each in case.mapped.items()]
)
def test_a_field_of_the_workload_is_mapped_to_the_field_of_the_job(target: str, path: str, field: str) -> None:
    given = request()
    assert FieldMapper(given.job, given.plan, "cli").field(rendered(target)[-1], path) == field


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("queued", [False, True])
def test_the_watcher_of_an_owner_stops_a_run_like_stepset(target: str, queued: bool) -> None:
    """The program is sent to the cluster as one file, so it cannot import the descriptions."""
    kind = WORKLOAD_KINDS[target]
    labels = {"kueue.x-k8s.io/queue-name": "team-a"} if queued else {}
    metadata = {"uid": "u", "resourceVersion": "1", "labels": labels}
    run = {"apiVersion": kind.api.api_version, "kind": kind.api.kind, "metadata": metadata}
    assert watch_owner.stays_suspended(run) is stop.stays_suspended(run)
    verb, body = watch_owner.stop_request(run, "suspend", "gone")
    assert verb == ("PATCH" if kind.suspension and not queued else "DELETE")
    assert body.get("spec", kind.suspension) == kind.suspension
    assert watch_owner.stop_request(run, "delete", "gone")[1]["propagationPolicy"] == kind.deletion
    annotated = {**run, "metadata": {**metadata, "annotations": {"stepset.dev/verdict": "{}"}}}
    assert watch_owner.finished(annotated) is not kind.finishes


def test_every_text_that_lists_the_targets_lists_all_targets() -> None:
    name = f"`?(?:{'|'.join(TARGET_NAMES)})`?(?: \\(default\\))?"
    listed = re.compile(rf"(?<!, )(?<!\w){name}(?:,\s+{name}){{3,}}(?:\s+or\s+{name})?")
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("src/stepset/**/*.py"), *ROOT.glob("providers/**/*.py")]
    found = {
        " ".join(each[0].replace("`", "").split())
        for page in [*pages, *ROOT.glob("components/**/*.py")]
        for each in listed.finditer(page.read_text("utf-8"))
    }
    assert found <= {TARGET_LIST, TARGET_LIST_WITH_DEFAULT, ", ".join(TARGET_NAMES)}


def test_each_table_of_targets_in_the_documentation_has_all_targets() -> None:
    text = (ROOT / "docs" / "targets.md").read_text("utf-8")
    tables = re.findall(r"^\| target \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        first = [row.split("|")[1] for row in table.splitlines()]
        assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(TARGET_NAMES)
