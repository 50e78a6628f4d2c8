"""Pages that a user follows on one machine: their files are written, their commands run, and their output compared."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.code_blocks import ROOT, Block, Command, blocks, commands, comparable
from tests.first_hour.programs import SCREENS, Screen
from tests.first_hour.shell import Shell, Shown

pytestmark = pytest.mark.local

PAGES = [
    pytest.param("getting-started.md", marks=pytest.mark.frameworks),
    "guides/checkpoints.md",
    pytest.param("guides/reporting.md", marks=pytest.mark.frameworks),
    "guides/secrets.md",
    "guides/sweeps.md",
]
_ELSEWHERE = ("kubectl", "--backend kubernetes")
"""Commands with these words need a cluster."""
_PROGRESS = "stepset: progress: "
"""The start of a line that reports progress. On a terminal, the status line shows the progress instead."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def files(page: Path) -> dict[str, str]:
    """The files of a page: the blocks that begin with a comment with the file's name."""
    return {block.file: block.text for block in blocks(page) if block.file}


def run(shell: Shell, command: Command) -> Shown:
    """Runs a command, checks that its output contains the lines of the page in any order, and returns the output."""
    words = shlex.split(command.words)
    variables = dict(word.split("=", 1) for word in words[: words.index("stepset")])
    shown = shell.with_variables(**variables)(*words[words.index("stepset") + 1 :])
    fails = any(" failed after " in line for line in command.output)
    assert (shown.code != 0) == fails, shown.text
    printed = [comparable(line) for line in shown.lines]
    expected = [line for line in command.output if shell.columns is None or not line.startswith(_PROGRESS)]
    assert [line for line in map(comparable, expected) if line not in printed] == [], shown.text
    in_status_line = [line.removeprefix(_PROGRESS) for line in command.output if line not in expected]
    assert [words for words in in_status_line if words not in shown.text] == [], shown.text
    return shown


def of_this_machine(block: Block) -> list[Command]:
    return [
        command
        for command in commands(block)
        if "stepset" in shlex.split(command.words) and not any(word in command.words for word in _ELSEWHERE)
    ]


def test_the_sweep_in_python_prints_the_best_run(tmp_path: Path) -> None:
    program = files(ROOT / "docs/guides/sweeps.md")["sweep.py"]
    (tmp_path / "sweep.py").write_text(program, encoding="utf-8")
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    printed = subprocess.check_output([sys.executable, "sweep.py"], cwd=tmp_path, env=env, text=True)
    assert printed.strip() == program.strip().rpartition("  # ")[2]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_print_its_output(name: str, screen: Screen, tmp_path: Path) -> None:
    page = ROOT / "docs" / name
    directory, home = tmp_path / "work", tmp_path / "home"
    directory.mkdir()
    home.mkdir()
    for file, text in files(page).items():
        (directory / file).write_text(text, encoding="utf-8")
    shell = Shell(directory, home, screen.columns, screen.variables)
    found = [command for block in blocks(page) for command in of_this_machine(block)]
    assert found
    shown = [run(shell, command) for command in found]
    coloured = any(_COLOUR.search(each.out + each.err) for each in shown)
    assert coloured == (screen.columns is not None and "NO_COLOR" not in screen.variables)
    if screen.columns is None:
        assert not [each.text for each in shown if "\x1b" in each.out + each.err]
    listed = [each for each, command in zip(shown, found, strict=True) if "stepset list" in command.words]
    for line in (line for each in listed for line in each.lines):
        assert screen.columns is None or len(line) <= screen.columns, line


@pytest.mark.frameworks
def test_the_function_of_the_guide_runs_in_a_notebook_and_from_the_command_line(tmp_path: Path) -> None:
    for file, text in files(ROOT / "docs/guides/functions.md").items():
        (tmp_path / file).write_text(text.replace("/models/", f"{tmp_path}/"), encoding="utf-8")
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    for command in (["notebook.py"], ["-m", "stepset", "run", "fit.yaml"]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (tmp_path / "fit.pt").unlink()
    assert "step 20, loss=" in done.stdout + done.stderr


def _trained_with_lightning(callback: Any) -> None:
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.layer(batch).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=2, log_every_n_steps=1, callbacks=[callback], **options)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(4, 1)))


def _trained_with_transformers(callback: Any, directory: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": self.layer(x).mean()}

    options = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    arguments = TrainingArguments(str(directory), max_steps=2, logging_steps=1, remove_unused_columns=False, **options)
    Trainer(Module(), arguments, train_dataset=[{"x": torch.ones(1)}] * 4, callbacks=[callback]).train()


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_the_callback_of_the_page_reports_metrics(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    (code,) = [block.text for block in blocks(ROOT / f"docs/frameworks/{library}.md") if "class Report" in block.text]
    names: dict[str, Any] = {}
    exec(code, names)
    if library == "lightning":
        _trained_with_lightning(names["Report"]())
    else:
        _trained_with_transformers(names["Report"](), tmp_path)
    reports = [
        json.loads(line)["stepset"] for line in capsys.readouterr().out.splitlines() if line[:11] == '{"stepset":'
    ]
    assert [report["step"] for report in reports][:2] == [1, 2]
    assert all(isinstance(report["metrics"]["loss"], float) for report in reports[:2])


@pytest.mark.frameworks
def test_the_torch_code_of_the_guide_about_checkpoints_saves_a_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (code,) = [block.text for block in blocks(ROOT / "docs/guides/checkpoints.md") if "torch.save" in block.text]
    model = torch.nn.Linear(2, 1)
    names = {"torch": torch, "model": model, "optimizer": torch.optim.SGD(model.parameters()), "step": 1}
    exec(code, {**names, "checkpoints": tmp_path})
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]
    assert torch.load(tmp_path / "last.pt")["step"] == 2
