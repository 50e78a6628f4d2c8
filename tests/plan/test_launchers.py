"""The launcher that a command starts, by its exact name."""

from __future__ import annotations

import shlex

import pytest

from stepset.plan.launchers import find_launcher, needs_python


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("torchrun --nnodes=2 t.py", "torchrun", "--nnodes=2 t.py"),
        ("/opt/bin/torchrun t.py", "torchrun", "t.py"),
        ("python -m torch.distributed.run t.py", "torchrun", "t.py"),
        ("python3.13 -u -X dev -m torch.distributed.launch t.py", "torchrun", "t.py"),
        ("python3 -um torch.distributed.run t.py", "torchrun", "t.py"),
        ("python3 -mtorch.distributed.run t.py", "torchrun", "t.py"),
        ("python3 -u /opt/conda/bin/torchrun t.py", "torchrun", "t.py"),
        ("uv run --module torch.distributed.run t.py", "torchrun", "t.py"),
        ("python3 -m accelerate.commands.accelerate_cli launch t.py", "accelerate", "t.py"),
        ("accelerate launch t.py", "accelerate", "t.py"),
        ("accelerate-launch t.py", "accelerate", "t.py"),
        ("python3 -m accelerate.commands.launch t.py", "accelerate", "t.py"),
        ("deepspeed t.py", "deepspeed", "t.py"),
        ("python3 -m deepspeed.launcher.runner t.py", "deepspeed", "t.py"),
        ("tune run recipe", "tune", "recipe"),
        ("fabric run t.py", "fabric", "t.py"),
        ("horovodrun -np 2 t.py", "horovodrun", "-np 2 t.py"),
        ("mlx.launch t.py", "mlx.launch", "t.py"),
        ("mpirun.openmpi -np 2 a", "mpirun", "-np 2 a"),
        ("mpiexec.hydra a", "mpirun", "a"),
        ("mpirun_rsh a", "mpirun", "a"),
        ("env A=1 nice -n 5 torchrun t.py", "torchrun", "t.py"),
        ("conda run -n torch python3 -m torch.distributed.run t.py", "torchrun", "t.py"),
        ("bash -c 'exec torchrun --nnodes=1 t.py'", "torchrun", "--nnodes=1 t.py"),
        ("env A=1 sh -euc 'torchrun t.py'", "torchrun", "t.py"),
    ],
)
def test_a_command_starts_a_launcher(command: str, kind: str, words: str) -> None:
    found = find_launcher(shlex.split(command))
    assert found is not None
    assert (found.kind, list(found.words)) == (kind, words.split())
    assert find_launcher(tuple(shlex.split(command))) == found
    if found.at is not None:
        assert shlex.split(command)[found.at :] == words.split()


@pytest.mark.parametrize(
    "command",
    [
        "",
        "torchrun_task t.py",
        "mpirun_x a",
        "mpirun-checks a",
        "tuner run",
        "tune download",
        "accelerate config",
        "deepspeed_train t.py",
        "python3 t.py torchrun --nnodes=1",
        "env A=1 python3 t.py torchrun --nnodes=1",
        "nice ./t.py torchrun --nnodes=1",
        "python3 -c 'import torch.distributed.run'",
        "python3 -m my.torch.distributed.run",
        "python3 tools/torchrun --nnodes=1",
        "python3 bin/train deepspeed",
        "python3 bin/python3 bin",
        "python3 -m",
        "bash -c './prepare && torchrun --nnodes=1 t.py'",
        'bash -c "it\'s"',
        "bash train.sh",
    ],
)
def test_any_other_command_starts_none(command: str) -> None:
    assert find_launcher(shlex.split(command)) is None


def test_many_interpreters_start_none() -> None:
    assert find_launcher(["/usr/bin/python3"] * 100_000) is None


@pytest.mark.parametrize(
    "program",
    ["python", "/usr/bin/python3.13", "torchrun", "tune", "accelerate", "mpirun", "mlx.launch", "mlx_lm.lora"],
)
def test_the_image_of_an_interpreter_or_a_launcher_has_python(program: str) -> None:
    assert needs_python(program)


@pytest.mark.parametrize("program", ["./a.out", "tuner", "mpirun_x", "mlxreport", "pythonic", "deepspeech"])
def test_the_image_of_another_program_may_have_none(program: str) -> None:
    assert not needs_python(program)


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nnodes=1 t.py",
        "OMP_NUM_THREADS=8 CUDA_VISIBLE_DEVICES=0,1 exec torchrun --nnodes=1 t.py",
        "torchrun \\\n  --nnodes=1 \\\n  t.py\n",
        "cd /work && torchrun --nnodes=1 t.py 2>&1 | tee log",
        "# install\nset -ex\npip install -r requirements.txt\nexport A=$(date +%s)\ntorchrun --nnodes=1 t.py # done\n",
        'eval "$(conda shell.bash hook)"; conda activate deepspeed; torchrun --nnodes=1 t.py || exit 1; echo "a; b"',
        "python3 -m pip install x && env A=1 bash -c 'torchrun --nnodes=1 t.py'",
    ],
)
def test_preparation_may_precede_the_launcher_in_the_text_of_a_shell(text: str) -> None:
    found = find_launcher(["bash", "-c", text])
    assert found is not None and found.at is None
    assert (found.kind, list(found.words)[:2]) == ("torchrun", ["--nnodes=1", "t.py"])


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --standalone a.py; torchrun b.py",
        "torchrun --standalone a.py & torchrun b.py",
        "torchrun --standalone a.py &\nwait",
        "test $STEPSET_NODE_RANK = 0 && torchrun --standalone a.py",
        "hostname | grep -q node-0 || exit 0; torchrun --standalone a.py",
        "if [ $STEPSET_NODE_RANK = 0 ]\nthen\n  torchrun --standalone a.py\nfi",
        "for each in a b; do torchrun --standalone $each.py; done",
        "run() { torchrun --standalone a.py; }; run",
        "case $A in\n  a) torchrun --standalone a.py ;;\nesac",
        "cat > run.sh <<END\ntorchrun --standalone a.py\nEND",
        "conda activate deepspeed",
        "! torchrun --standalone a.py",
        "torchrun 'a",
        "torchrun `options` a.py",
        "",
    ],
)
def test_the_launcher_in_another_text_of_a_shell_is_not_known(text: str) -> None:
    assert find_launcher(["bash", "-c", text]) is None
