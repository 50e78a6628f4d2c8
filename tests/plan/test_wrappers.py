"""Where the command of `env`, `conda run` and similar programs begins."""

from __future__ import annotations

import shlex

import pytest

from stepset.plan.launchers import find_launcher
from stepset.plan.starters import starts_ranks
from stepset.plan.wrappers import wrapped_at


@pytest.mark.parametrize(
    ("wrapper", "program"),
    [
        ("", "./a.out --launcher mpirun"),
        ("env -u deepspeed DS=/usr/bin/deepspeed -- ", "./a.out"),
        ("conda run --no-capture-output -n deepspeed --cwd /opt/mpirun", "python train.py"),
        ("micromamba run -r /opt/deepspeed -n deepspeed", "torchrun train.py"),
        ("pixi run -e deepspeed", "train"),
        ("uv run --frozen --with deepspeed --python 3.13", "torchrun train.py"),
        ("uv run", "-m torch.distributed.run train.py"),
        ("uv run --with deepspeed", "train.py -m torchrun"),
        ("poetry run", "torchrun train.py"),
        ("singularity exec --nv --bind /opt/deepspeed torch.sif", "./train --launcher deepspeed"),
        ("apptainer run -B /data:/deepspeed torch.sif", "torchrun train.py"),
        ("sudo -E -u deepspeed A=1", "./a.out mpirun"),
        ("gosu deepspeed", "./a.out"),
        ("nsys profile -o deepspeed --trace=cuda -f true", "torchrun train.py"),
        ("perf stat -o mpirun", "./a.out"),
        ("timeout -k 5 --signal=TERM 1h", "./a.out mpirun"),
        ("numactl -N 0 --localalloc --membind=0", "torchrun train.py"),
        ("taskset -c 0-3 nice -19 nohup stdbuf -oL", "./a.out"),
        ("tini -g -- dumb-init", "torchrun train.py"),
        ("xvfb-run -a -s '-screen 0 640x480x24'", "./a.out --mode mpirun"),
        ("gdb -batch -ex run --args", "./a.out"),
    ],
)
def test_the_command_of_a_wrapper_begins_behind_its_options_and_their_values(wrapper: str, program: str) -> None:
    words = shlex.split(f"{wrapper} {program}")
    assert words[wrapped_at(words) :] == shlex.split(program)


@pytest.mark.parametrize("command", [[], ["env"], ["conda", "run"], ["timeout", "1h"], ["nice", "-n"], ["tini", "--"]])
def test_a_wrapper_without_a_command_has_no_program(command: list[str]) -> None:
    assert wrapped_at(command) >= len(command)
    assert find_launcher(command) is None
    assert starts_ranks(command) is None


def test_names_of_launchers_among_the_words_of_a_wrapper_start_nothing() -> None:
    for command in ("conda run -n deepspeed python train.py", "env A=1 bash run.sh torchrun --nnodes=1 train.py"):
        assert find_launcher(command.split()) is None
    assert starts_ranks(["conda", "run", "-n", "deepspeed", "python", "train.py"]) is None
    assert starts_ranks(["nice", "./a.out", "mpirun"]) is None
    found = find_launcher(["uv", "run", "--with", "deepspeed", "-m", "torch.distributed.run", "train.py"])
    assert found is not None and found.name == "uv run -m torch.distributed.run"


def test_many_wrappers_cost_no_more_than_their_words() -> None:
    assert wrapped_at([*["nice", "-n", "1"] * 100_000, "./a.out"]) == 300_000
