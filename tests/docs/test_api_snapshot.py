"""docs/api records the public API of each package; a change of the API without a change of the record is an error.

tests/airflow and tests/kfp check the records of the other packages.
"""

from __future__ import annotations

import inspect
import pickle
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import get_args, get_type_hints

import pytest
from tools.api_snapshot import differences, main, snapshot

import stepset


def _module(name: str, **names: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names, __all__=list(names))
    return module


def _classes(annotated: object) -> set[type]:
    """The classes of stepset in the annotations of a function or a dataclass, and in those of their fields."""
    found: set[type] = set()
    kinds = list(get_type_hints(annotated).values())
    while kinds:
        kind = kinds.pop()
        kinds += get_args(kind)
        if isinstance(kind, type) and kind.__module__.startswith("stepset") and kind not in found:
            found |= {kind} | (_classes(kind) if is_dataclass(kind) else set())
    return found


def test_the_record_of_stepset_is_current() -> None:
    assert main(["--check"]) == 0


def test_a_changed_signature_fails_the_check_with_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    current = snapshot(stepset)
    former = current.replace(
        "def stepset.explain(job: JobSource, **fields: Any)", "def stepset.explain(job: str, **fields: Any)"
    )
    assert former != current
    (tmp_path / "stepset.txt").write_text(former)
    assert main(["--check"], tmp_path) == 1
    err = capsys.readouterr().err
    assert "\n-def stepset.explain(job: str, **fields: Any) -> list[ExplainRow]\n" in err
    assert "\n+def stepset.explain(job: JobSource, **fields: Any) -> list[ExplainRow]\n" in err


def test_a_missing_record_fails_the_check(tmp_path: Path) -> None:
    assert main(["--check"], tmp_path) == 1


def test_the_tool_writes_what_it_checks(tmp_path: Path) -> None:
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0


class TestSnapshot:
    def test_contains_defaults_keyword_only_parameters_and_enum_members(self) -> None:
        class Colour(Enum):
            RED = 1

        def paint(what: str, *, colour: Colour = Colour.RED) -> None: ...

        text = snapshot(_module("shop", paint=paint, Colour=Colour))
        assert "def shop.paint(what: str, *, colour: Colour = Colour.RED) -> None" in text
        assert "class shop.Colour(Enum)\n    RED = 1" in text
        assert text.index("shop.Colour") < text.index("shop.paint")

    def test_rejects_a_default_whose_text_differs_in_each_process(self) -> None:
        def paint(what: object = object()) -> None: ...

        with pytest.raises(ValueError, match=r"shop: a value without a repr of its own: def shop\.paint"):
            snapshot(_module("shop", paint=paint))

    def test_a_difference_names_both_texts(self) -> None:
        assert differences("a\n", "a\n", "x") == ""
        assert differences("a\n", "b\n", "x").splitlines() == ["--- x", "+++ x (now)", "@@ -1 +1 @@", "-a", "+b"]


class TestPublicNames:
    def test_dir_lists_all_public_names_and_the_version(self) -> None:
        assert dir(stepset) == sorted([*stepset.__all__, "__version__"])

    @pytest.mark.parametrize("name", stepset.__all__)
    def test_each_has_a_docstring(self, name: str) -> None:
        assert getattr(stepset, name).__doc__

    def test_the_error_of_a_failed_run_can_be_pickled(self) -> None:
        status = stepset.RunStatus("digits-1", "digits", "local", stepset.Phase.FAILED)
        error = pickle.loads(pickle.dumps(stepset.TrainingFailedError("run digits-1 failed", status)))
        assert (str(error), error.status) == ("run digits-1 failed", status)

    def test_functions_accept_and_return_public_classes_only(self) -> None:
        functions = [getattr(module, name) for module in (stepset, stepset.aio) for name in module.__all__]
        used = set().union(*map(_classes, filter(inspect.isfunction, functions)))
        assert {stepset.RunStatus, stepset.Failure, stepset.RankStatus, stepset.ClusterOptions} <= used
        assert {cls.__name__ for cls in used} <= set(stepset.__all__)
