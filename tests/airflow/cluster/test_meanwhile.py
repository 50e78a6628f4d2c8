"""Events during a run on a real cluster, while its task waits, synchronously or deferred.

Each test checks everything: JobSets that were created, state, message, lines, result, the asset's event, remains.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.airflow.cluster.conftest import Tasks
from tests.airflow.cluster.scene import PHASES, Scene, meanwhile
from tests.airflow.conftest import RunDag, WriteDag
from tests.airflow.harness import has_logged, run_again
from tests.cluster.proxy import proxy_to
from tests.cluster.queues import queue, set_cpus
from tests.cluster.runs import ACCOUNT
from tests.cluster.stage import Stage
from tests.cluster.testbed import outages
from tests.cluster.testbed.layout import Choice
from tests.cluster.testbed.layout import TestbedError as NotDone
from tests.cluster.testbed.objects import Objects
from tests.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.cluster]

WAYS = pytest.mark.parametrize("deferrable", [pytest.param(False, id="sync"), pytest.param(True, id="deferred")])
LEAVES = (
    "if rank == 0: open(os.environ['STEPSET_RESULT_FILE'], 'w').write("
    "json.dumps({'attempt': attempt, 'from': os.environ.get('STEPSET_RESUME_FROM')}))"
)
COUNTS_UNTIL_END = ("say(f'started-{rank}')", "count_until('end')", LEAVES)
REFUSED = 4.0
"""Seconds for which the rights are missing: longer than the pause between two attempts."""
AWAY = 60.0
"""Seconds for which the API server is down or unreachable."""


@pytest.fixture
def unwatched(tasks: Tasks, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The scene of a test, without the watch of created JobSets."""
    if tasks.runs.cluster.choice is None:
        pytest.skip("ranks and test share a directory: only on the cluster of `make cluster`")
    stage, phases = tmp_path / "stage", tmp_path / "phases"
    stage.mkdir()
    monkeypatch.setenv(PHASES, str(phases))
    return Scene(tasks, Stage(stage), phases, request.node.name)


@pytest.fixture
def scene(unwatched: Scene, tmp_path: Path) -> Iterator[Scene]:
    """The scene of a test."""
    with unwatched.watched(tmp_path / "jobsets") as watched:
        yield watched


@WAYS
def test_an_eviction_restarts_the_run_and_is_reported_once(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    lines = ("if attempt == 0: say(f'started-{rank}')", "count_until('end' if attempt else 'never')", LEAVES)
    path = write_dag(scene.train(*lines, deferrable=deferrable))

    def evicted() -> None:
        scene.wait_for_word("started-0")
        scene.wait_for_word("started-1")
        scene.tasks.runs.evict(scene.tasks.runs.pods()[1]["metadata"]["name"])
        scene.stage.say("end")

    with meanwhile(evicted):
        run = run_dag(path)
    scene.check(run, result={"attempt": 1, "from": None}, attempts=2)
    restarts = [line for line in run.lines if line.startswith("restart 1: rank 1")]
    assert len(restarts) == 1, run.explained()
    assert "was evicted" in restarts[0]


@WAYS
def test_a_queued_run_starts_once_it_is_admitted(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    runs = scene.tasks.runs
    fields = {"queue_name": "team-a", "resources_per_node": {"cpu": "100m"}, "startup_timeout": 120}
    path = write_dag(scene.train("count_until('end')", LEAVES, deferrable=deferrable, **fields))
    with queue(runs.cluster, runs.namespace, 0):
        steps = (
            lambda: scene.wait_for("Pending Queued"),
            lambda: set_cpus(runs.cluster, runs.namespace, 1),
            lambda: scene.wait_for("Running"),
            lambda: scene.stage.say("end"),
        )
        with meanwhile(*steps):
            run = run_dag(path)
    scene.check(run, result={"attempt": 0, "from": None})
    assert len([line for line in run.lines if "Pending (Queued)" in line]) == 1


@WAYS
def test_a_run_that_is_not_admitted_in_time_fails_the_task(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    runs = scene.tasks.runs
    fields = {"queue_name": "team-a", "resources_per_node": {"cpu": "100m"}, "admission_timeout": 3}
    path = write_dag(scene.train(*COUNTS_UNTIL_END, deferrable=deferrable, **fields))
    with queue(runs.cluster, runs.namespace, 0):
        run = run_dag(path)
    scene.check(run, state="failed", error=r"Unschedulable: .*gave up after 3 s", attempts=0)


@WAYS
def test_a_run_that_exceeds_the_job_s_deadline_fails_the_task(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    run = run_dag(write_dag(scene.train("count_until('never')", deferrable=deferrable, deadline="45s")))
    scene.check(run, state="failed", error="DeadlineExceeded: ")


@WAYS
def test_deleting_the_jobset_by_hand_cancels_the_run(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    runs = scene.tasks.runs

    def seen() -> None:
        scene.wait_for("Running")
        assert until(lambda: has_logged("[rank 0] line 0"), 120), (
            "a run that was deleted before it was seen is only lost"
        )

    steps = (seen, lambda: runs.cluster.kubectl("delete", "jobset", scene.names()[-1], "-n", runs.namespace))
    with meanwhile(*steps):
        run = run_dag(write_dag(scene.train("count_until('never')", deferrable=deferrable)))
    assert isinstance(run.error, AirflowFailException), run.explained()
    scene.check(run, state="failed", error=r"run \S+ was cancelled after [0-9.mhs ]+: its JobSet was deleted")


@WAYS
def test_a_retry_resumes_from_the_checkpoint(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    checkpoints = scene.stage.path / "checkpoints"
    checkpoints.mkdir()
    lines = (
        f"saved = Path({str(checkpoints)!r}, 'step')",
        "if attempt == 0 and rank == 0: saved.write_text('3')",
        "if attempt == 0: sys.exit(1)",
        "if rank == 0:",
        "    result = {'step': saved.read_text(), 'from': os.environ['STEPSET_RESUME_FROM']}",
        "    Path(os.environ['STEPSET_RESULT_FILE']).write_text(json.dumps(result))",
    )
    fields = {"checkpoint_dir": str(checkpoints), "retries": 1, "retry_delay": 0.1, "num_nodes": 1}
    run = run_dag(write_dag(scene.train(*lines, deferrable=deferrable, **fields)))
    result = {"step": "3", "from": str(checkpoints)}
    assert run.xcom("train") == result, run.explained()
    scene.check(run, jobsets=2, tries=2, result=result, attempts=2, checkpoint=str(checkpoints))


def revocable(tasks: Tasks) -> str:
    """Creates a token of the account that the server refuses once the Secret `pass` is deleted."""
    runs = tasks.runs
    runs.cluster.kubectl("create", "secret", "generic", "pass", "-n", runs.namespace)
    bound = ("--bound-object-kind=Secret", "--bound-object-name=pass", "--duration=1h")
    return runs.cluster.kubectl("create", "token", ACCOUNT, "-n", runs.namespace, *bound).strip()


def revoke(tasks: Tasks, kubeconfig: Path) -> None:
    """Deletes the Secret and waits until the server, which caches tokens for some seconds, refuses the token."""
    runs = tasks.runs
    runs.cluster.kubectl("delete", "secret", "pass", "-n", runs.namespace)

    def refused() -> bool:
        try:
            runs.cluster.kubectl("--kubeconfig", str(kubeconfig), "get", "pods", "-n", runs.namespace)
        except NotDone as error:
            return "must be logged in" in str(error) or "Unauthorized" in str(error)
        return False

    assert until(refused), "the server still accepts the token"


@WAYS
def test_a_new_token_replaces_one_that_is_refused_during_the_run(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool, tmp_path: Path
) -> None:
    tasks, good = scene.tasks, scene.tasks.runs.kubeconfig.read_text()
    old = tmp_path / "old.kubeconfig"
    old.write_text(good.replace(tasks.token(), revocable(tasks)))
    tasks.runs.kubeconfig.write_text(old.read_text())

    def renewed() -> None:
        scene.wait_for_word("started-0")
        tasks.runs.kubeconfig.write_text(good)
        revoke(tasks, old)
        scene.stage.say("end")

    with meanwhile(renewed):
        run = run_dag(write_dag(scene.train(*COUNTS_UNTIL_END, deferrable=deferrable)))
    scene.check(run, result={"attempt": 0, "from": None})


@WAYS
def test_a_token_that_is_refused_from_the_start_fails_the_try_and_a_later_try_has_a_valid_one(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool
) -> None:
    tasks, good = scene.tasks, scene.tasks.runs.kubeconfig.read_text()
    tasks.runs.kubeconfig.write_text(good.replace(tasks.token(), "refused-token"))
    path = write_dag(scene.train(LEAVES, deferrable=deferrable))
    run = run_dag(path)
    assert scene.names() == []
    assert "refuses the credentials" in str(run.error).splitlines()[0], run.explained()
    assert "refused-token" not in run.explained()
    tasks.runs.kubeconfig.write_text(good)
    again = run_again(path, run, clear=False)
    scene.check(again, tries=2, result={"attempt": 0, "from": None})


@WAYS
def test_a_run_survives_an_unreachable_server_for_a_minute(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool, tmp_path: Path
) -> None:
    kubeconfig = scene.tasks.runs.kubeconfig
    with proxy_to(str(kubeconfig), tmp_path) as (proxy, through):
        kubeconfig.write_text(Path(through).read_text())

        def away() -> None:
            scene.wait_for_word("started-0")
            scene.wait_for("Running")
            proxy.refuse()
            time.sleep(AWAY)
            proxy.refuse(False)
            scene.stage.say("end")

        with meanwhile(away):
            run = run_dag(write_dag(scene.train(*COUNTS_UNTIL_END, deferrable=deferrable)))
        scene.check(run, result={"attempt": 0, "from": None})
    assert len([line for line in run.lines if "does not answer" in line]) == 1


def _is_forbidden(kubeconfig: Path, namespace: str) -> bool:
    try:
        Objects(str(kubeconfig)).get("pods", namespace)
    except NotDone as refused:
        assert "Forbidden" in str(refused)
        return True
    return False


@WAYS
def test_a_task_waits_while_the_server_refuses_its_rights_for_a_moment(
    write_dag: WriteDag, run_dag: RunDag, scene: Scene, deferrable: bool, tmp_path: Path
) -> None:
    """A server that has just started refuses accounts that it accepted before."""
    runs, kubeconfig = scene.tasks.runs, scene.tasks.runs.kubeconfig
    with proxy_to(str(kubeconfig), tmp_path) as (proxy, through):
        kubeconfig.write_text(Path(through).read_text())

        def unknown() -> None:
            scene.wait_for_word("started-0")
            scene.wait_for("Running")
            assert until(lambda: has_logged("[rank 0] line 0"), 120), (
                "the task waits only for rights that it has had before"
            )
            name = f"rolebinding/stepset-jobset:{runs.namespace}:submitter"
            role = runs.get(name)
            del role["metadata"]["resourceVersion"]
            runs.cluster.objects.delete(name, runs.namespace)
            # The server's authorizer learns of the deletion from its own watch.
            assert until(lambda: _is_forbidden(kubeconfig, runs.namespace), 60)
            proxy.cut()  # the task repeats all open requests, and the server refuses them
            time.sleep(REFUSED)
            runs.cluster.objects.create(role, runs.namespace)
            scene.stage.say("end")

        with meanwhile(unknown):
            run = run_dag(write_dag(scene.train(*COUNTS_UNTIL_END, deferrable=deferrable)))
        scene.check(run, result={"attempt": 0, "from": None})


@WAYS
@pytest.mark.disruptive
def test_a_run_survives_an_api_server_that_is_down_for_a_minute(
    write_dag: WriteDag, run_dag: RunDag, unwatched: Scene, testbed_choice: Choice, deferrable: bool, tmp_path: Path
) -> None:
    scene, tasks = unwatched, unwatched.tasks
    uids: list[str] = []
    with ExitStack() as later:

        def away() -> None:
            scene.wait_for_word("started-0")
            scene.wait_for("Running")
            uids.extend(each["metadata"]["uid"] for each in tasks.workloads())
            outages.stop(outages.API_SERVER, signal.SIGKILL)
            time.sleep(AWAY)
            outages.start(testbed_choice, outages.API_SERVER)
            watched.append(later.enter_context(scene.watched(tmp_path / "jobsets")))
            uids.extend(each["metadata"]["uid"] for each in tasks.workloads())
            scene.stage.say("end")

        watched: list[Scene] = []
        with meanwhile(away):
            run = run_dag(write_dag(scene.train(*COUNTS_UNTIL_END, deferrable=deferrable)))
        watched[0].check(run, result={"attempt": 0, "from": None})
    assert len(uids) == 2
    assert uids[0] == uids[1]
    assert len([line for line in run.lines if "does not answer; the run continues" in line]) == 1
