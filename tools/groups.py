"""The groups of tests: which tests each contains, and what they need. docs/testing/README.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Group:
    """Tests that one pytest command runs.

    Args:
        name: the group's name on the command line.
        title: the heading of its output.
        marks: pytest's mark expression that selects the tests.
        cluster: which of the suite's clusters the tests need, counted from 0; None: none. Groups of one cluster run one
            after the other.
        environment: the directory below .venvs with the Python that runs the tests.
        paths: the directories or files of the tests, separated by spaces; default: all. tests/tools/test_suite.py
            checks that no test is left out.
        excluded: a file in `paths` that another group runs.
        workers: how many tests run at a time; may exceed the number of cores if tests mostly wait for pods.
        twins: environments in which other groups run the same tests. The group is skipped if one of them has the same
            minor version of Python.
        timeout: maximum seconds of one test, with its fixtures; afterwards it fails, and pytest prints all stacks.
        quick: whether `make test` runs the group.
        repeats: whether other groups contain its tests, too.
    """

    name: str
    title: str
    marks: str
    cluster: int | None = None
    environment: str = "airflow"
    paths: str = ""
    excluded: str = ""
    workers: int = 1
    twins: tuple[str, ...] = ()
    timeout: int = 900
    quick: bool = False
    repeats: bool = False


_LOGS = "tests/cluster/test_logs.py"
_AIRFLOW_34 = (
    "test_airflow_internals.py test_kill.py test_kpo_parameters.py test_links.py test_log_channel.py test_loops.py"
    " test_operator.py test_parsing.py test_provider.py test_retry.py test_runs.py test_sensor.py test_serialization.py"
    " test_task_state.py test_trigger_log.py page/test_browser.py page/test_loops.py"
)
"""Files of tests in tests/airflow that depend on Airflow's version."""
_CORE = "agent cli conformance functions kubernetes odd_jobs plan spec targets watch"
"""Directories of tests that need neither Airflow nor KFP, nor a package that may not support a new Python yet."""


def _on_python(which: str, twins: tuple[str, ...]) -> Group:
    return Group(
        which,
        f"The core, the command line and the agent on the {which} Python",
        "not frameworks and not airflow and not cluster and not kfp",
        environment=which,
        paths=" ".join(f"tests/{directory}" for directory in _CORE.split()),
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
        paths="tests/training tests/local tests/cli tests/airflow",
        workers=2,
        quick=True,
        repeats=True,
    ),
    Group(
        "smoke-kfp",
        "Kubeflow Pipelines, once",
        "smoke and kfp",
        environment="kfp",
        paths="tests/kfp",
        quick=True,
        repeats=True,
    ),
    Group(
        "local",
        "Processes on this machine: the agent and the local backend",
        "local and not frameworks and not airflow and not cluster",
        paths="tests/agent tests/cli tests/local tests/odd_jobs tests/security tests/tools",
        workers=3,
    ),
    _on_python("oldest", twins=("airflow",)),
    _on_python("newest", twins=("airflow", "oldest")),
    Group("airflow", "Airflow", "airflow and not cluster", paths="tests/airflow", workers=2),
    Group(
        "airflow34",
        "Airflow 3.4: what depends on Airflow's version",
        "airflow and not cluster",
        environment="airflow34",
        paths=" ".join(f"tests/airflow/{file}" for file in _AIRFLOW_34.split()),
        workers=3,
    ),
    Group("kfp", "Kubeflow Pipelines", "kfp and not cluster", environment="kfp", paths="tests/kfp", workers=2),
    Group("kubernetes30", "The oldest kubernetes package", "not cluster", environment="kfp", paths="tests/kubernetes"),
    Group(
        "kubernetes37",
        "The newest kubernetes package",
        "not cluster",
        environment="kubernetes37",
        paths="tests/kubernetes",
    ),
    Group(
        "frameworks",
        "A real training with each framework",
        "frameworks and not cluster",
        paths="tests/frameworks tests/local tests/security tests/training",
        workers=2,
    ),
    Group(
        "cluster",
        "On a real cluster",
        "cluster and not disruptive and not stack",
        cluster=0,
        paths="tests/airflow/cluster tests/cluster tests/odd_jobs tests/security/cluster"
        " tests/targets/test_on_cluster.py tests/tools",
        excluded=_LOGS,
        workers=4,
    ),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster",
        cluster=0,
        environment="kfp",
        paths="tests/kfp",
        workers=3,
    ),
    Group(
        "airflow34-cluster",
        "Airflow 3.4 on a real cluster",
        "cluster",
        cluster=1,
        environment="airflow34",
        paths=(
            "tests/airflow/cluster/test_discarded_state.py tests/airflow/cluster/test_loops.py"
            " tests/airflow/stack/test_loops.py"
        ),
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=0,
        environment="kubernetes37",
        paths=_LOGS,
    ),
    Group(
        "faults",
        "Faults of a real cluster",
        "cluster and disruptive",
        cluster=1,
        paths="tests/airflow/cluster/test_meanwhile.py tests/cluster",
    ),
    Group(
        "contract",
        "The same scenarios through each interface",
        "cluster",
        cluster=1,
        paths="tests/contract",
        timeout=1800,  # a test waits for steps that the plays of other tests share
    ),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=1, paths="tests/airflow/stack"),
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
