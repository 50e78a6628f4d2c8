"""The description of each framework is complete, and agrees with the plans of the framework."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from stepset.backends.local.environment import _FOREIGN
from stepset.errors import BadInputError
from stepset.frameworks import FRAMEWORKS
from stepset.frameworks.framework_spec import FrameworkSpec
from stepset.plan.values import NodeRank, ProcessRank, Text
from tests.frameworks.cases import CASES, FORMS
from tests.frameworks.cases.case import Form
from tests.frameworks.planned import Plan


@pytest.mark.parametrize("missing", [field.name for field in fields(FrameworkSpec)])
def test_a_framework_that_lacks_a_part_of_its_description_is_an_error(missing: str) -> None:
    whole = {field.name: getattr(FRAMEWORKS["torch"], field.name) for field in fields(FrameworkSpec)}
    assert FrameworkSpec(**whole) == FRAMEWORKS["torch"]
    with pytest.raises(TypeError, match=f"'{missing}'"):
        FrameworkSpec(**{name: value for name, value in whole.items() if name != missing})


@pytest.mark.parametrize("form", FORMS)
def test_a_run_inside_another_run_does_not_see_the_position_of_the_outer_rank(form: Form) -> None:
    """`stepset run` in a rank starts a world of its own, so variables with a position are removed."""
    for job in ({"num_nodes": 2}, {"num_nodes": 2, "procs_per_node": 2}):
        entries = Plan(form.framework, **job).plan.group("node").env
        positions = [e.name for e in entries if isinstance(e.value, Text) and _has_position(e.value)]
        assert [name for name in positions if not _FOREIGN.match(name)] == []


def _has_position(value: Text) -> bool:
    return any(isinstance(part, (NodeRank, ProcessRank)) for part in value.parts)


@pytest.mark.parametrize(("kind", "reserved"), [(kind, name) for kind, case in CASES.items() for name in case.reserved])
def test_a_job_cannot_set_a_reserved_variable(kind: str, reserved: str) -> None:
    options: Any = CASES[kind].forms[0].framework
    with pytest.raises(BadInputError, match=rf"^env\.{re.escape(reserved)}: reserved, because {kind} jobs get it"):
        Plan(options, num_nodes=2, env={reserved: "0"})


def test_every_launcher_that_a_plan_starts_has_advice_to_install_it() -> None:
    advised = {program for framework in FRAMEWORKS.values() for program in framework.programs}
    for form in FORMS:
        plan = Plan(form.framework, num_nodes=2, procs_per_node=2).plan
        started = {str(group.command[0].parts[0]) for group in plan.groups if group.command}
        assert started <= {*advised, "python3"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_nodes", [1, 3, 60_000])
def test_kubernetes_accepts_the_ports_of_a_plan(form: Form, num_nodes: int) -> None:
    try:
        ports = Plan(form.framework, num_nodes=num_nodes).plan.ports
    except BadInputError as error:
        assert num_nodes == 60_000 and str(error).endswith("; lower it")
        return
    assert len({*ports.values()}) == len(ports)
    assert all(1 <= port <= 65535 for port in ports.values())
    assert all(re.fullmatch("[a-z][a-z0-9-]{0,14}", name) for name in ports)
