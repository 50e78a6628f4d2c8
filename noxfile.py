"""The groups of tests. Each group is a session of nox, which runs pytest.

`nox --list` lists the groups, `nox -s local airflow` runs two of them, and `nox -t test`, `nox -t gate` and
`nox -t all` run those of `make test`, `make test-gate` and `make test-all`. docs/testing/README.md describes the
groups.

The tests that fail are run again, alone, when the other tests of their group have ended: tools/results.py.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from tests.cluster.testbed.borrow import borrowed  # noqa: E402  # after the change of sys.path
from tests.cluster.testbed.handle import NoClusterError  # noqa: E402
from tests.cluster.testbed.layout import TestbedError  # noqa: E402
from tools.results import DIRECTORY, MOST_UNSTEADY, Report, outcome_of, read  # noqa: E402

ENVIRONMENTS = ROOT / ".venvs"
MOST_FAILED = 25
"""The number of failed tests of a group after which pytest stops: they probably have a common cause."""
TRIES = 3
"""How often a test that fails is run, with the first time."""
_SECONDS_TO_STOP = 600
"""The time in which an interrupted pytest tears down its fixtures, for example a cluster's nodes."""
SEPARATE = ("machine", "exhaustive")
"""Marks of tests that have a group of their own."""


@dataclass(frozen=True)
class Group:
    """Tests that one pytest command runs.

    Args:
        name: the name of the session.
        title: one line about the group.
        marks: the mark expression of pytest that selects the tests. Tests with a mark of SEPARATE are selected only if
            the expression consists of this mark.
        tier: the command that runs the group: "test", "gate" or "all". Empty: only a user who names the group.
        paths: the directories and files of the tests, separated by spaces.
        ignored: a file in `paths` whose tests another group runs.
        environment: the directory in .venvs whose Python runs the tests.
        cluster: whether the tests need a cluster.
        workers: the largest number of tests that run at the same time.
        tries: how often a test that fails is run. Pure functions are run once: their tests cannot be unsteady.
        twins: environments in which other groups run the same tests. The group is skipped if one of these has the same
            minor version of Python as the group's own environment.
        timeout: the time limit of one test, including its fixtures, in seconds.
        needs: environment variables; if one of them is not set, the group is skipped.
    """

    name: str
    title: str
    marks: str
    tier: str = "all"
    paths: str = "tests"
    ignored: str = ""
    environment: str = "airflow"
    cluster: bool = False
    workers: int = 1
    tries: int = TRIES
    twins: tuple[str, ...] = ()
    timeout: int = 900
    needs: tuple[str, ...] = ()

    @property
    def selection(self) -> str:
        """The mark expression for pytest."""
        return self.marks if self.marks in SEPARATE else " and not ".join((f"({self.marks})", *SEPARATE))


_LOGS = "tests/cluster/test_logs.py"
_AIRFLOW_34 = (
    "test_airflow_internals.py test_kill.py test_kpo_parameters.py test_links.py test_log_channel.py test_loops.py"
    " test_operator.py test_parsing.py test_provider.py test_retry.py test_runs.py test_sensor.py test_serialization.py"
    " test_task_state.py test_trigger_log.py page/test_browser.py page/test_loops.py"
)
"""The files in tests/airflow whose results may depend on the version of Airflow."""
_CORE = "agent cli conformance functions html kubernetes odd_jobs plan spec targets watch"
"""The directories of tests that need neither Airflow nor KFP, which may not support a new Python version yet."""


def _on_python(which: str, twins: tuple[str, ...]) -> Group:
    return Group(
        which,
        f"The core, the command line and the agent on the {which} Python",
        "not frameworks and not airflow and not cluster and not kfp",
        paths=" ".join(f"tests/{directory}" for directory in _CORE.split()),
        environment=which,
        workers=3,
        twins=twins,
    )


GROUPS = (
    Group(
        "core",
        "The pure core, the command line, the manifests",
        "not local and not frameworks and not airflow and not cluster and not kfp",
        tier="test",
        workers=2,
        tries=1,
    ),
    Group(
        "smoke",
        "Every framework and every interface, once",
        "smoke and not kfp",
        tier="test",
        paths="tests/training tests/local tests/cli tests/airflow",
        workers=2,
    ),
    Group(
        "smoke-kfp",
        "Kubeflow Pipelines, once",
        "smoke and kfp",
        tier="test",
        paths="tests/kfp",
        environment="kfp",
    ),
    Group(
        "local",
        "Processes on this machine: the agent and the local backend",
        "local and not frameworks and not airflow and not cluster and not smoke",
        tier="gate",
        paths="tests/agent tests/cli tests/first_hour tests/hangs tests/local tests/notebook tests/odd_jobs"
        " tests/reported tests/security",
        workers=3,
    ),
    Group(
        "airflow",
        "Airflow",
        "airflow and not cluster and not smoke and not frameworks",
        tier="gate",
        paths="tests/airflow tests/first_hour/test_dag_author.py tests/reported",
        workers=3,
    ),
    Group(
        "airflow34",
        "Airflow 3.4: what depends on Airflow's version",
        "airflow and not cluster",
        tier="gate",
        paths=" ".join(f"tests/airflow/{file}" for file in _AIRFLOW_34.split()),
        environment="airflow34",
        workers=3,
    ),
    Group(
        "kfp",
        "Kubeflow Pipelines",
        "kfp and not cluster and not smoke",
        tier="gate",
        paths="tests/kfp tests/first_hour/test_kfp_author.py tests/reported",
        environment="kfp",
        workers=3,
    ),
    Group(
        "gate-cluster",
        "Each target and each interface on a real cluster",
        "gate and not kfp",
        tier="gate",
        paths="tests/airflow/cluster tests/cluster tests/contract tests/security/cluster",
        cluster=True,
        workers=3,
    ),
    Group(
        "gate-kfp-cluster",
        "A step of Kubeflow Pipelines on a real cluster",
        "gate and kfp",
        tier="gate",
        paths="tests/kfp/cluster",
        environment="kfp",
        cluster=True,
    ),
    Group(
        "tools",
        "The tools of the repository: the runner of the tests, audits, releases",
        "local",
        paths="tests/tools",
        workers=2,
    ),
    _on_python("oldest", twins=("airflow",)),
    _on_python("newest", twins=("airflow", "oldest")),
    Group(
        "kubernetes30",
        "The oldest kubernetes package",
        "not cluster",
        paths="tests/kubernetes",
        environment="kfp",
        workers=3,
    ),
    Group(
        "kubernetes37",
        "The newest kubernetes package",
        "not cluster",
        paths="tests/kubernetes",
        environment="kubernetes37",
        workers=3,
    ),
    Group(
        "frameworks",
        "A real training with each framework",
        "frameworks and not cluster and not smoke",
        paths="tests/airflow/test_digits_retrain.py tests/airflow/test_examples.py"
        " tests/airflow/test_manifest_recipe.py tests/airflow/test_warm_start.py tests/first_hour tests/frameworks"
        " tests/hangs tests/local tests/reported tests/security tests/training",
        workers=3,
    ),
    Group(
        "machine",
        "Bounds of CPU time, alone on the machine",
        "machine",
        paths="tests/cli tests/odd_jobs tests/security",
    ),
    Group(
        "exhaustive",
        "Large and many inputs of each parser",
        "exhaustive",
        paths="tests/security",
        workers=2,
        tries=1,
    ),
    Group(
        "cluster",
        "On a real cluster",
        "cluster and not disruptive and not stack and not gate",
        paths="tests/airflow/cluster tests/cluster tests/odd_jobs tests/reported tests/security/cluster"
        " tests/targets/test_on_cluster.py",
        ignored=_LOGS,
        cluster=True,
        workers=4,
    ),
    Group(
        "kfp-cluster",
        "Kubeflow Pipelines on a real cluster",
        "kfp and cluster and not gate",
        paths="tests/kfp",
        environment="kfp",
        cluster=True,
        workers=3,
    ),
    Group(
        "kubernetes37-cluster",
        "The newest kubernetes package on a real cluster",
        "cluster and not disruptive",
        paths=_LOGS,
        environment="kubernetes37",
        cluster=True,
    ),
    Group(
        "airflow34-cluster",
        "Airflow 3.4 on a real cluster",
        "cluster",
        paths="tests/airflow/cluster/test_discarded_state.py tests/airflow/cluster/test_loops.py"
        " tests/airflow/stack/test_loops.py",
        environment="airflow34",
        cluster=True,
    ),
    Group(
        "faults",
        "Faults of a real cluster",
        "cluster and disruptive",
        paths="tests/airflow/cluster/test_meanwhile.py tests/cluster tests/odd_jobs tests/security/cluster",
        cluster=True,
    ),
    Group(
        "contract",
        "The same scenarios through each interface",
        "cluster and not gate",
        paths="tests/contract",
        cluster=True,
        timeout=1800,  # a test may wait for steps that several tests share
    ),
    Group("stack", "A whole Airflow on a real cluster", "stack", paths="tests/airflow/stack", cluster=True),
    Group(
        "kfp-backend",
        "Kubeflow Pipelines' own backend on a real cluster",
        "kfp and cluster",
        tier="",
        paths="tests/kfp_backend",
        environment="kfp",
        cluster=True,
        timeout=3600,  # the first test starts the backend
        needs=("STEPSET_KFP_SOURCE", "STEPSET_ARGO_SOURCE"),
    ),
)

nox.options.sessions = [group.name for group in GROUPS if group.tier == "test"]
_CLUSTER = ExitStack()  # one cluster for all sessions, started by the first that needs one
atexit.register(_CLUSTER.close)


@cache
def others(seconds: float = 2.0) -> float:
    """Returns how many other processes run or wait for a core, on average.

    The load average would contain the processes that set up the environments before the tests.

    Args:
        seconds: the duration of the measurement.
    """
    path = Path("/proc/loadavg")
    if not path.exists():
        return os.getloadavg()[0]
    found = []
    for _ in range(20):
        time.sleep(seconds / 20)
        found.append(int(path.read_text().split()[3].partition("/")[0]) - 1)  # this process runs, too
    return sum(found) / len(found)


def workers(group: Group, cores: int, load: float) -> int:
    """Returns how many of a group's tests run at the same time.

    On two idle cores these are at most three, because a test often waits. On busy cores these are at least two, because
    one process would get too small a share of the cores.

    Args:
        cores: the number of cores of the machine.
        load: the number of other processes that run or wait for a core.
    """
    return min(group.workers, max(2, round(1.5 * cores - load / 4)))


def python_of(environment: str, environments: Path = ENVIRONMENTS) -> str | None:
    """Returns the minor version of an environment's Python, such as "3.11"; None if it is not installed."""
    found = next((environments / environment).glob("lib/python3.*"), None)
    return found.name.removeprefix("python") if found else None


def twin_of(group: Group, environments: Path = ENVIRONMENTS) -> str | None:
    """Returns the first of a group's `twins` with the same minor version of Python as the group's environment."""
    python = python_of(group.environment, environments)
    return next((twin for twin in group.twins if python and python_of(twin, environments) == python), None)


def _run(session: nox.Session, group: Group) -> None:
    """Runs a group's tests, and those that fail again."""
    if twin := twin_of(group):
        session.skip(f".venvs/{twin} has Python {python_of(twin)}, too, and runs these tests")
    if unset := [name for name in group.needs if not os.environ.get(name)]:
        session.skip(f"{' and '.join(unset)} not set (docs/testing/{group.name}.md)")
    if group.cluster:
        _start_cluster(session)
    directory = DIRECTORY / group.name
    shutil.rmtree(directory, ignore_errors=True)
    number = workers(group, os.cpu_count() or 1, others())
    # Files run in the given order. Without the option, files with few tests, which may take longest, would run last.
    parallel = ["-n", str(number), "--dist", "loadfile", "--no-loadscope-reorder"] if number > 1 else []
    reports: list[Report] = []
    for count in range(1, group.tries + 1):
        report = directory / f"{count}.xml"
        again = parallel if count == 1 else ["--last-failed", "--last-failed-no-failures", "none"]
        _pytest(session, group, report, *session.posargs, *again)
        reports.append(read(report))
        if not 0 < len(reports[-1].failed) <= MOST_UNSTEADY:
            break
    if failed := outcome_of(reports).failed:
        session.error(f"failed: {', '.join(failed)}")


def _start_cluster(session: nox.Session) -> None:
    required = os.environ.get("STEPSET_CLUSTER") == "required"
    try:
        _CLUSTER.enter_context(borrowed(required))
    except NoClusterError as error:
        if required:
            session.error(str(error))
        session.skip(str(error))
    except TestbedError as error:
        session.error(str(error))


def _pytest(session: nox.Session, group: Group, report: Path, *more: str) -> None:
    environment = {"PYTHONDONTWRITEBYTECODE": None}  # otherwise thousands of processes compile imports
    if group.cluster:
        environment["STEPSET_CLUSTER"] = "required"  # tests must not be skipped if the cluster disappears
    session.run(
        str(ENVIRONMENTS / group.environment / "bin/python"),
        *("-m", "pytest", "-q", "-m", group.selection, "--timeout", str(group.timeout), "--maxfail", str(MOST_FAILED)),
        *("--durations", "5", "--durations-min", "20"),
        *("--junit-xml", str(report), "-o", f"cache_dir={report.parent / 'cache'}"),
        *(f"--ignore={path}" for path in group.ignored.split()),
        *group.paths.split(),
        *more,
        env=environment,
        success_codes=[0, 1],  # 1: tests failed
        interrupt_timeout=_SECONDS_TO_STOP,
    )


def define(group: Group) -> None:
    """Registers a session of nox that runs a group."""
    tags = {"test": ["test", "all"], "gate": ["gate", "all"], "all": ["all"], "": []}[group.tier]
    tags += ["clusters"] if group.cluster and group.tier else []

    def session(session: nox.Session) -> None:
        _run(session, group)

    session.__doc__ = group.title
    nox.session(name=group.name, tags=tags, venv_backend="none")(session)


def _interrupt(*_: object) -> None:
    """Interrupts pytest and then nox, as Ctrl-C in a terminal does, so that pytest tears down its fixtures."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    for child in children.read_text().split() if children.exists() else ():
        os.kill(int(child), signal.SIGINT)
    raise KeyboardInterrupt


# A shell starts programs in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, _interrupt)
for _group in GROUPS:
    define(_group)
