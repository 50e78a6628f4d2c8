"""The tables of launchers' options agree with the launchers' own parsers, and their rules with real launchers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stepset.frameworks.launcher_options import GRAMMARS

pytestmark = pytest.mark.frameworks

# Prints option -> number of its values, for one parser. DeepSpeed builds its parser in a function that parses at once.
_PARSERS = {
    "torchrun": "from torch.distributed.run import get_args_parser; parser = get_args_parser()",
    "accelerate": "from accelerate.commands.launch import launch_command_parser; parser = launch_command_parser()",
    "deepspeed": (
        "import argparse; kept = []\n"
        "def keep(self, **_): kept.append(self); raise InterruptedError\n"
        "argparse.ArgumentParser.parse_args = keep\n"
        "from deepspeed.launcher import runner\n"
        "try: runner.parse_args([])\n"
        "except InterruptedError: pass\n"
        "parser = kept[0]"
    ),
}
_PRINT = """
import json
print(json.dumps({
    option: 0 if action.nargs == 0 else 1
    for action in parser._actions for option in action.option_strings
}))
"""
_PACKAGES = {"torchrun": "torch"}
_STOPS = {"-h", "--help", "--print_completion"}
"""Options after which a launcher prints a text and ends."""


@cache
def real_options(launcher: str) -> dict[str, int]:
    """Returns the options of a launcher, in the spelling of the Grammar, with the number of their values."""
    program = [sys.executable, "-c", _PARSERS[launcher] + _PRINT]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    options: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return {name[:2] + name[2:].replace("-", "_"): count for name, count in options.items()}


@pytest.mark.parametrize("launcher", _PARSERS)
def test_the_table_has_the_options_of_the_launcher_with_the_number_of_their_values(launcher: str) -> None:
    if importlib.util.find_spec(_PACKAGES.get(launcher, launcher)) is None:
        pytest.skip(f"needs {launcher}")
    grammar = GRAMMARS[launcher]
    wrong = {
        name: count
        for name, count in real_options(launcher).items()
        if name not in _STOPS
        and (name not in grammar.none if count == 0 else name not in grammar.one)
        and (name in grammar.none or not name.startswith(grammar.one_prefixes or ("\0",)))
    }
    assert wrong == {}


def test_fabric_has_the_options_of_the_table() -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("needs lightning")
    program = (
        "import json, click; from lightning.fabric import cli\n"
        "kinds = cli._main.commands['run'].params\n"
        "print(json.dumps([o for p in kinds if isinstance(p, click.Option) and not p.is_flag for o in p.opts]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])) == GRAMMARS["fabric"].one


_SHOW = "import os; print('rank', os.environ.get('RANK'), 'of', os.environ.get('TORCHELASTIC_RUN_ID'), flush=True)"


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        (["--num_processes", "2"], {"rank None of None"}),
        (["--cpu", "--num_processes", "2"], {"rank None of None"}),
        (["--multi_gpu", "--num_processes", "2"], {"rank 0 of mine", "rank 1 of mine"}),
    ],
    ids=["alone", "cpu", "torchrun"],
)
def test_accelerate_starts_torchrun_which_reads_pet_variables_only_if_asked_to(
    flags: list[str], ranks: set[str], tmp_path: Path
) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("needs accelerate")
    script = tmp_path / "show.py"
    script.write_text(_SHOW)
    env = {**os.environ, "HF_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "PET_RDZV_ID": "mine"}
    program = [sys.executable, "-m", "accelerate.commands.launch", *flags, "--main_process_port", "0", str(script)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {line for line in done.stdout.splitlines() if line.startswith("rank ")} == ranks
