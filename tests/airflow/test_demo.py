"""The verdict, picture and table of `make demo`. test_digits_retrain.py runs the DAG itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.airflow.harness import ROOT

pytestmark = pytest.mark.airflow


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import demo

    return demo


def test_fails_unless_the_accuracy_of_every_run_is_above_95_percent(demo: ModuleType) -> None:
    good = retraining(demo, accuracy=0.9501)
    assert demo.verdict([good, good]) == 0
    assert demo.verdict([good, replace(good, accuracy=0.95)]) == 1


def test_the_picture_is_a_png_file(demo: ModuleType, tmp_path: Path) -> None:
    runs = [retraining(demo), replace(retraining(demo), number=2, start="warm start", promoted=False)]
    path = demo.picture(runs, tmp_path / "picture.png", 0.95)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_table_has_a_row_for_each_run(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    demo.table([retraining(demo), replace(retraining(demo), number=2, accuracy=0.5, promoted=False)])
    out = capsys.readouterr().out
    assert "97.22%" in out
    assert "50.00%" in out


def retraining(demo: ModuleType, accuracy: float = 0.9722):  # type: ignore[no-untyped-def]  # a class of tools/demo.py
    seconds = {"prepare": 1.0, "train": 2.0, "evaluate": 3.0, "promote": 4.0}
    history = {"loss": [2.0, 1.0], "accuracy": [0.5, accuracy]}
    return demo.Retraining(1, history, "random weights", 0.1, 4, accuracy, 0.1, True, seconds)
