"""The groups of tests: which tests each contains, and what they need. docs/testing/README.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Group:
    """Tests that one pytest command runs.

    Args:
        name: as an argument.
        title: as a heading.
        marks: pytest's expression.
        cluster: which of the suite's clusters the tests need, counted from 0; None: none. Groups of one cluster run one
            after the other.
        environment: the directory below .venvs with the Python that runs the tests.
        place: the directories or files of the tests, separated by spaces; default: all. tests/tools/test_suite.py
            checks that no test is left out.
        without: a file in `place` that another group runs.
        workers: how many tests run at a time; more than the machine has cores where tests mostly wait for pods.
        twins: environments in which other groups run the same tests. The group is skipped if one of them has the same
            minor version of Python.
        quick: whether `make test` runs the group.
        repeats: whether other groups contain its tests, too.
    """

    name: str
    title: str
    marks: str
    cluster: int | None = None
    environment: str = "airflow"
    place: str = ""
    without: str = ""
    workers: int = 1
    twins: tuple[str, ...] = ()
    quick: bool = False
    repeats: bool = False


_LOGS = "tests/cluster/test_logs.py"
_CORE = "agent cli conformance functions kubernetes plan spec targets watch"
"""Directories of tests that need neither Airflow nor KFP, and no package that a Python may not have yet."""


def _on_python(which: str, twins: tuple[str, ...]) -> Group:
    return Group(
        which,
        f"The core, the command line and the agent on the {which} Python",
        "not frameworks and not airflow and not cluster and not kfp",
        environment=which,
        place=" ".join(f"tests/{directory}" for directory in _CORE.split()),
        workers=3,
        twins=twins,
    )


GROUPS = (
    Group(
        "core",
        "The pure core, the command line, the manifests",
        "not local and not frameworks and not airflow and not cluster",
        workers=2,
        quick=True,
    ),
    Group(
        "smoke",
        "Every framework and every interface, once",
        "smoke and not kfp",
        place="tests/training tests/local tests/cli tests/airflow",
        workers=2,
        quick=True,
        repeats=True,
    ),
    Group(
        "smoke-kfp",
        "Kubeflow Pipelines, once",
        "smoke and kfp",
        environment="kfp",
        place="tests/kfp",
        quick=True,
        repeats=True,
    ),
    Group(
        "local",
        "Processes on this machine: the agent and the local backend",
        "local and not frameworks and not airflow and not cluster",
        place="tests/agent tests/cli tests/local tests/tools",
        workers=3,
    ),
    _on_python("oldest", twins=("airflow",)),
    _on_python("newest", twins=("airflow", "oldest")),
    Group("airflow", "Airflow", "airflow and not cluster", place="tests/airflow", workers=2),
    Group("kfp", "Kubeflow Pipelines", "kfp and not cluster", environment="kfp", place="tests/kfp", workers=2),
    Group("kubernetes30", "The oldest kubernetes package", "not cluster", environment="kfp", place="tests/kubernetes"),
    Group("kubernetes37", "The newest", "not cluster", environment="kubernetes37", place="tests/kubernetes"),
    Group(
        "frameworks",
        "Training for real, each framework",
        "frameworks and not cluster",
        place="tests/frameworks tests/training",
        workers=2,
    ),
    Group(
        "cluster",
        "On a real cluster",
        "cluster and not disruptive and not stack",
        cluster=0,
        place="tests/airflow/cluster tests/cluster tests/targets/test_on_cluster.py tests/tools",
        without=_LOGS,
        workers=4,
    ),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster",
        cluster=0,
        environment="kfp",
        place="tests/kfp",
        workers=3,
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=0,
        environment="kubernetes37",
        place=_LOGS,
    ),
    Group(
        "faults",
        "On a real cluster that breaks",
        "cluster and disruptive",
        cluster=1,
        place="tests/airflow/cluster/test_meanwhile.py tests/cluster",
    ),
    Group("contract", "Every interface follows a run alike", "cluster", cluster=1, place="tests/contract"),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=1, place="tests/airflow/stack"),
)


def quick(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of `make test`."""
    return [group for group in groups if group.quick]


def everything(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of `make test-all`: each test once."""
    return [group for group in groups if not group.repeats]


def remainder(groups: Sequence[Group]) -> list[Group]:
    """Returns what `make test-all` runs and `make test` does not."""
    return [
        replace(group, marks=f"({group.marks}) and not smoke") if group.environment in ("airflow", "kfp") else group
        for group in everything(groups)
        if not group.quick
    ]
