"""Names: derived if not given, rejected if no pod could have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.safe_names import slug
from stepset.spec import parse_job
from stepset.spec.names import DNS_1035, jobset_name_budget


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ({"script": "train.py"}, "train"),
        ({"script": "src/My_Train.v2.py"}, "my-train-v2"),
        ({"script": "3d_unet.py"}, "job-3d-unet"),
        ({"script": "训练.py"}, "job-a29c0de1"),
        ({"module": "pkg.sub.fine_tune"}, "fine-tune"),
        ({"module": "trainer.main"}, "trainer"),
        ({"script": "trainer/main.py"}, "trainer"),
        ({"script": "src/main.py"}, "main"),
        ({"command": ["/opt/bin/Trainer", "--x"]}, "trainer"),
        ({"command": [3]}, "job-3"),
        ({"command": ["python3", "train", "--data", "x.py"]}, "train"),
        ({"command": ["python3", "-W", "ignore", "-X", "dev", "src/pi.py", "x.py"]}, "pi"),
        ({"command": ["python3", "-m", "pkg.train", "conf.py"]}, "train"),
        ({"command": ["python3", "-um", "pkg.train"]}, "train"),
        ({"command": ["python3", "-mpkg.train"]}, "train"),
        ({"command": ["python3", "-uc", "print()", "x.py"]}, "python3"),
        ({"command": ["python3", "-m"]}, "python3"),
        ({"command": ["python3", "-m", "mpi4py", "pi.py", "x.py"]}, "pi"),
        ({"command": ["python3", "-m", "mpi4py", "-m", "pkg.pi"]}, "pi"),
        ({"command": ["python3", "-m", "torch.distributed.run", "--nnodes", "2", "train.py", "x.py"]}, "train"),
        ({"function": "pass"}, "train"),
        ({"framework": {"kind": "torchtune", "model": "llama3_2/1B"}}, "train"),
        ({"script": "a" * 70 + ".py"}, "a" * 40),
        ({"script": "a" * 39 + "-b.py"}, "a" * 39),
        ({"script": "train.py", "name": "mine"}, "mine"),
        ({"script": "train.py", "name": None}, "train"),
    ],
)
def test_a_name_is_derived_from_what_runs(job: dict[str, Any], name: str) -> None:
    assert parse_job(job).name == name


@pytest.mark.parametrize("role", ["a", "dataset-initializer", "m" * 40, "m" * 50])
@pytest.mark.parametrize("framework", ["torch", "mpi"])
def test_a_derived_name_is_never_too_long(role: str, framework: str) -> None:
    job = {"script": "a" * 70 + ".py", "framework": framework, "num_nodes": 12, "roles": [{"name": role, "image": "x"}]}
    assert 1 <= len(parse_job(job).name) <= 40


@given(st.text(max_size=80), st.integers(1, 63))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_becomes_a_label(text: str, limit: int) -> None:
    name = slug(text, limit)
    assert DNS_1035.fullmatch(name) and len(name) <= limit
    assert slug(name, limit) == name


@pytest.mark.parametrize(
    ("groups", "budget"),
    [
        ([("node", 1)], 48),
        ([("node", 10)], 48),
        ([("node", 11)], 47),
        ([("node", 100)], 47),
        ([("node", 101)], 46),
        ([("node", 1000)], 46),
        ([("node", 1001)], 45),
        ([("node", 4), ("launcher", 1)], 44),
        ([("dataset-initializer", 1), ("node", 4)], 33),
    ],
)
def test_the_budget_of_a_jobsets_name(groups: list[tuple[str, int]], budget: int) -> None:
    assert jobset_name_budget(groups) == budget


@pytest.mark.parametrize(
    ("more", "budget"),
    [
        ({}, 48),
        ({"num_nodes": 100}, 47),
        ({"framework": "mpi"}, 44),
        ({"framework": {"kind": "mlx", "backend": "mpi"}}, 44),
        ({"framework": {"kind": "deepspeed", "launcher": "mpirun"}}, 44),
        ({"framework": {"kind": "deepspeed", "launcher": "deepspeed"}}, 48),
        ({"roles": [{"name": "dataset-initializer", "image": "x"}]}, 33),
    ],
)
def test_a_jobs_name_fits_its_pod_groups(more: dict[str, Any], budget: int) -> None:
    assert parse_job({"script": "a.py", "name": "n" * budget, **more}).name == "n" * budget
    with pytest.raises(BadInputError, match=f"at most {budget} fit"):
        parse_job({"script": "a.py", "name": "n" * (budget + 1), **more})


@pytest.mark.parametrize("name", ["", "-a", "a-", "1a", "A", "a.b", "a_b", "ä", "a b", "a\n", "a" * 64])
def test_rejects_names_that_are_not_dns_1035_labels(name: str) -> None:
    for job in ({"name": name}, {"network": {"subdomain": name}}, {"roles": [{"name": name, "image": "x"}]}):
        with pytest.raises(BadInputError, match=r"is not a DNS-1035 label|at most 63 are allowed"):
            parse_job({"script": "a.py", **job})
