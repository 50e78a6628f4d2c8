"""The cost of planning: few imports, and the same for ten thousand nodes as for two."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from stepset.frameworks import make_plan
from stepset.spec import parse_job
from tests.frameworks.cases import FORMS
from tests.frameworks.cases.case import Form


def _modules_after(statement: str) -> set[str]:
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_importing_stepset_imports_nothing_heavy() -> None:
    bare = _modules_after("pass")
    loaded = _modules_after("import stepset") - bare
    assert {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names} == {"stepset"}


def test_errors_can_be_caught_without_loading_the_models() -> None:
    loaded = _modules_after("import stepset; stepset.BadInputError, stepset.TrainingFailedError")
    own = {name for name in loaded if name.startswith("stepset")}
    assert own == {"stepset", "stepset.errors", "stepset.exit_code", "stepset.printable"}
    assert not {"pydantic", "yaml"} & loaded


def test_planning_needs_neither_kubernetes_nor_airflow() -> None:
    statement = "import stepset; stepset.explain({'script': 'train.py', 'num_nodes': 2})"
    assert not {"kubernetes", "kubernetes_asyncio", "airflow", "kfp", "torch"} & _modules_after(statement)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import stepset

    with pytest.raises(AttributeError, match="has no attribute 'trainn'"):
        _ = stepset.trainn


def _objects(value: Any) -> int:
    """Returns the number of objects in a plan, recursively."""
    if is_dataclass(value):
        return 1 + sum(_objects(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, (tuple, list)):
        return 1 + sum(map(_objects, value))
    if isinstance(value, dict):
        return 1 + sum(map(_objects, value.values()))
    return 1


ELASTIC = Form({"kind": "torch", "elastic": {}}, (1, 3, 4, 2, 8))


@pytest.mark.parametrize("form", [*(form for form in FORMS if not form.lists_hosts), ELASTIC])
def test_a_plan_is_as_large_for_ten_thousand_nodes_as_for_two(form: Form) -> None:
    job = {"framework": form.framework, "procs_per_node": 8, "script": "train.py"}
    two, many = (make_plan(parse_job({**job, "num_nodes": n})) for n in (2, 10_000))
    assert _objects(many) == _objects(two)
    assert many.world.size == 10_000 * (8 if form.obeys else 1)


@pytest.mark.parametrize("form", [form for form in FORMS if form.lists_hosts])
def test_a_hostfile_has_one_line_for_each_address_and_nothing_else_grows(form: Form) -> None:
    job = {"framework": form.framework, "script": "train.py", "procs_per_node": 1}
    two, many = (make_plan(parse_job({**job, "num_nodes": n})) for n in (2, 100))
    per_line = {_objects(line) for plan in (two, many) for line in plan.files[0].lines[1:-1]}
    assert len(many.files[0].lines) - len(two.files[0].lines) == 98
    ports = 2 * (len(many.ports) - len(two.ports))  # one in the plan, one in the group
    assert _objects(many) - _objects(two) <= 98 * max(per_line) + ports
