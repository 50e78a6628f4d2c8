"""Defines the groups of tests: the tests of each group, and what the tests need.

docs/testing/README.md describes the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Group:
    """Tests that one pytest command runs.

    Args:
        name: the group's name on the command line.
        title: the heading of the group's output.
        marks: the mark expression of pytest that selects the tests.
        cluster: the number of the suite's cluster that the tests need. The first cluster has the number 0. None if the
            tests need no cluster. Groups that need the same cluster run one after the other.
        environment: the name of the directory in .venvs with the Python that runs the tests.
        paths: the directories or files of the tests, separated by spaces. Default: all tests. tests/tools/test_suite.py
            checks that every test belongs to a group.
        excluded: a file in `paths` that another group runs.
        workers: the number of tests that run at the same time. If the tests mostly wait for pods, this number may
            exceed the number of cores.
        twins: the environments in which other groups run the same tests. The group is skipped if one of these
            environments has the same minor version of Python as the group's own environment.
        timeout: the maximum number of seconds of one test, including its fixtures. After this time, the test fails, and
            pytest prints all stacks.
        quick: whether `make test` runs the group.
        repeats: whether other groups also contain the group's tests.
        needs: environment variables. If one of them is not set, the group is skipped. A group with such variables runs
            only if its name is given on the command line.
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
    needs: tuple[str, ...] = ()


_LOGS = "tests/cluster/test_logs.py"
_AIRFLOW_34 = (
    "test_airflow_internals.py test_kill.py test_kpo_parameters.py test_links.py test_log_channel.py test_loops.py"
    " test_operator.py test_parsing.py test_provider.py test_retry.py test_runs.py test_sensor.py test_serialization.py"
    " test_task_state.py test_trigger_log.py page/test_browser.py page/test_loops.py"
)
"""The test files in tests/airflow whose results may depend on the version of Airflow."""
_CORE = "agent cli conformance functions html kubernetes odd_jobs plan spec targets watch"
"""Directories of tests that need neither Airflow nor KFP.

These tests need no package that may not support a new Python version yet."""


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
        paths="tests/agent tests/cli tests/first_hour tests/local tests/notebook tests/odd_jobs tests/security"
        " tests/tools",
        workers=3,
    ),
    _on_python("oldest", twins=("airflow",)),
    _on_python("newest", twins=("airflow", "oldest")),
    Group(
        "airflow",
        "Airflow",
        "airflow and not cluster",
        paths="tests/airflow tests/first_hour/test_dag_author.py",
        workers=3,
    ),
    Group(
        "airflow34",
        "Airflow 3.4: what depends on Airflow's version",
        "airflow and not cluster",
        environment="airflow34",
        paths=" ".join(f"tests/airflow/{file}" for file in _AIRFLOW_34.split()),
        workers=3,
    ),
    Group(
        "kfp",
        "Kubeflow Pipelines",
        "kfp and not cluster",
        environment="kfp",
        paths="tests/kfp tests/first_hour/test_kfp_author.py",
        workers=3,
    ),
    Group(
        "kubernetes30",
        "The oldest kubernetes package",
        "not cluster",
        environment="kfp",
        paths="tests/kubernetes",
        workers=3,
    ),
    Group(
        "kubernetes37",
        "The newest kubernetes package",
        "not cluster",
        environment="kubernetes37",
        paths="tests/kubernetes",
        workers=3,
    ),
    Group(
        "frameworks",
        "A real training with each framework",
        "frameworks and not cluster",
        paths="tests/first_hour tests/frameworks tests/local tests/security tests/training",
        workers=3,
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
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        cluster=0,
        environment="kubernetes37",
        paths=_LOGS,
    ),
    Group(
        "airflow34-cluster",
        "Airflow 3.4 on a real cluster",
        "cluster",
        cluster=0,
        environment="airflow34",
        paths=(
            "tests/airflow/cluster/test_discarded_state.py tests/airflow/cluster/test_loops.py"
            " tests/airflow/stack/test_loops.py"
        ),
    ),
    Group(
        "faults",
        "Faults of a real cluster",
        "cluster and disruptive",
        cluster=1,
        paths="tests/airflow/cluster/test_meanwhile.py tests/cluster tests/odd_jobs tests/security/cluster",
    ),
    Group(
        "contract",
        "The same scenarios through each interface",
        "cluster",
        cluster=1,
        paths="tests/contract",
        timeout=1800,  # a test may wait for steps that several tests share
    ),
    Group("stack", "A whole Airflow on a real cluster", "stack", cluster=1, paths="tests/airflow/stack"),
    Group(
        "kfp-backend",
        "Kubeflow Pipelines' own backend on a real cluster",
        "kfp and cluster",
        cluster=0,
        environment="kfp",
        paths="tests/kfp_backend",
        timeout=3600,  # the first test starts the backend
        needs=("STEPSET_KFP_SOURCE", "STEPSET_ARGO_SOURCE"),
    ),
)


def quick(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of `make test`."""
    return [group for group in groups if group.quick]


def everything(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups of `make test-all`.

    Each test is contained in one of the groups. Groups that need an environment variable are omitted.
    """
    return [group for group in groups if not group.repeats and not group.needs]


def remainder(groups: Sequence[Group]) -> list[Group]:
    """Returns the groups that `make test-all` runs, but `make test` does not."""
    return [
        replace(group, marks=f"({group.marks}) and not smoke") if group.environment in ("airflow", "kfp") else group
        for group in everything(groups)
        if not group.quick
    ]
