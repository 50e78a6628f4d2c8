"""Functions: those of a module are shipped with its files, others as source text."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stepset
from stepset.cli import main
from stepset.plan.program import PROGRAM_LIMIT
from stepset.sources.code_files import find_code_files

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("home")]

PACKAGE = {
    "__init__.py": "",
    "sums.py": "def sum_to(count):\n    print(f'counted to {count}')\n    return sum(range(count + 1))\n",
    "train.py": "from shipped.sums import sum_to\n\ndef total(count):\n    return sum_to(count)\n",
}


@pytest.fixture
def total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """A function of a package that only this process can import."""
    (tmp_path / "shipped").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "shipped" / name).write_text(text)
    for name in [name for name in sys.modules if name.split(".")[0] == "shipped"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    function: Callable[[int], int] = importlib.import_module("shipped.train").total
    return function


@pytest.fixture
def single(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """A function of a module that is one file, which only this process can import."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shipped_single.py").write_text(
        "CONSTANT = 'constant of the module'\n\ndef answer():\n    return CONSTANT\n"
    )
    monkeypatch.delitem(sys.modules, "shipped_single", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    function: Callable[[], str] = importlib.import_module("shipped_single").answer
    return function


def test_a_function_of_a_module_is_shipped_with_its_package(total: Callable[[int], int]) -> None:
    assert stepset.run(total, framework="plain", args={"count": 4}).result == 10


def test_a_function_of_a_module_without_a_package_is_shipped_with_the_file(single: Callable[[], str]) -> None:
    status = stepset.run(single, framework="plain")
    assert status.result == "constant of the module"
    assert status.name.startswith("answer")


def test_a_function_of_a_module_is_shipped_with_the_modules_beside_it_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shipped_helper.py").write_text(
        "from shipped_beside import FACTOR\n\ndef scale(number):\n    return FACTOR * number\n"
    )
    (tmp_path / "modules" / "shipped_beside.py").write_text("FACTOR = 3\n")
    for name in ("shipped_helper", "shipped_beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    scale = importlib.import_module("shipped_helper").scale
    assert stepset.run(scale, framework="plain", args=[2]).result == 6


def test_with_code_a_function_is_shipped_with_that_directory(single: Callable[[], str], tmp_path: Path) -> None:
    assert stepset.run(single, framework="plain", code=str(tmp_path / "modules")).result == "constant of the module"
    (tmp_path / "empty").mkdir()
    with pytest.raises(stepset.BadInputError, match=r"^code: .* does not contain the module shipped_single"):
        stepset.run(single, framework="plain", code=str(tmp_path / "empty"))


def test_the_directories_of_runs_are_not_sent_with_code(
    single: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "modules" / "runs-of-project"))
    for _ in range(2):
        assert stepset.run(single, framework="plain", code=str(tmp_path / "modules")).result == "constant of the module"
    assert [*find_code_files(tmp_path / "modules").files] == ["shipped_single.py"]


def test_a_function_without_a_module_is_shipped_as_source() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert stepset.run(double, framework="plain", args=[4]).result == 8


def test_an_unknown_argument_is_an_error_with_a_suggestion(total: Callable[[int], int]) -> None:
    with pytest.raises(stepset.BadInputError, match="'num_node'; did you mean 'num_nodes'"):
        stepset.run(total, num_node=2)


def test_arguments_that_do_not_fit_are_an_error(total: Callable[[int], int]) -> None:
    with pytest.raises(stepset.BadInputError, match="args: they do not fit total"):
        stepset.run(total, args=[1, 2])
    parameter = next(iter(inspect.signature(total).parameters))
    with pytest.raises(stepset.BadInputError, match=rf"unknown parameter '{parameter}s'; did you mean '{parameter}'\?"):
        stepset.run(total, args={f"{parameter}s": 1})
    with pytest.raises(stepset.BadInputError, match=f"^argument {parameter}: a value of type object is not JSON"):
        stepset.run(total, args={parameter: object()})
    with pytest.raises(stepset.BadInputError, match=r"^backend: 0\.2 is not known; .*; arguments of a function"):
        stepset.run(total, 0.2)  # type: ignore[arg-type]


def test_arguments_that_are_too_large_are_an_error(total: Callable[[int], int]) -> None:
    with pytest.raises(stepset.BadInputError) as caught:
        stepset.run(total, args=["x" * 2_000_000])
    assert str(caught.value) == (
        "args: the arguments have 2000028 bytes; at most 1048576 can be shipped; write the data to a file and give its"
        " path"
    )


def test_name_is_the_name_of_the_job_and_run_name_that_of_the_run(single: Callable[[], str]) -> None:
    status = stepset.run(single, framework="plain", name="mine")
    assert status.job == "mine"
    assert status.name.startswith("mine-")
    named = stepset.submit({"command": ["true"], "framework": "plain"}, name="mine", run_name="this").wait()
    assert (named.job, named.name) == ("mine", "this")
    assert stepset.status("mine").name == "this"
    (first, *_) = stepset.render({"command": ["true"], "image": "i"}, name="mine", run_name="this")
    assert first["metadata"]["labels"]["stepset.dev/job"] == "mine"


def test_the_notes_of_rendered_manifests_are_logged(
    single: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stepset.render(single, image="i", checkpoint_dir="ck")
    assert caplog.messages == [
        f"stepset: checkpoint_dir: {tmp_path}/ck is not on a writable volume that outlives the pods, so the checkpoints"
        f" are lost when a pod is replaced; add storage: [{{path: {tmp_path}/ck, claim: NAME}}]"
    ]
    caplog.clear()
    storage = [{"path": "/ckpt", "claim": "checkpoints"}]
    assert stepset.render(single, image="i", checkpoint_dir="/ckpt/train", storage=storage)
    assert caplog.messages == []


def test_the_call_of_a_function_is_the_program_of_the_run(
    total: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    status = stepset.run(total, framework="plain", args={"count": 4})
    assert status.program == "total(count=4)"
    assert "total(count=4)" in status._repr_html_()
    runs = stepset.list_runs()
    assert "total(count=4)" in repr(runs)
    assert '<td class="text">total(count=4)</td>' in runs._repr_html_()
    assert main(["status", status.name]) == 0
    assert "total(count=4)" in capsys.readouterr().out
    (workload,) = (each for each in stepset.render(total, image="i", args=[10**400]) if each["kind"] == "JobSet")
    program = workload["metadata"]["annotations"]["stepset.dev/program"]
    assert program.startswith("total(1000")
    assert len(program) == PROGRAM_LIMIT
