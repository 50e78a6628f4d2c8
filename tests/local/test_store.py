"""Run directories: any process finds them, complete or not at all."""

import json
import os
import pwd
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.runs.settings import home_directory
from stepset.backends.local.runs.store import RunStore
from stepset.backends.prune import PruneRule
from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError
from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset.spec import TrainingJob

JOB = TrainingJob(name="digits", framework="plain", command=["true"])


def status(name: str = "digits-1", **changes: object) -> RunStatus:
    return replace(RunStatus(name=name, job="digits", backend="local", created=1.0), **changes)  # type: ignore[arg-type]


class TestTheHome:
    @pytest.mark.parametrize(
        ("environ", "expected"),
        [
            ({"STEPSET_HOME": "/a/b", "XDG_STATE_HOME": "/c"}, Path("/a/b")),
            ({"XDG_STATE_HOME": "/c"}, Path("/c/stepset")),
            ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, Path("/h/.local/state/stepset")),
            ({"HOME": "/h"}, Path("/h/.local/state/stepset")),
        ],
    )
    def test_is_set_by_the_variables(self, environ: dict[str, str], expected: Path) -> None:
        assert home_directory(environ) == expected

    def test_is_the_accounts_if_home_is_empty(self) -> None:
        assert home_directory({"HOME": ""}) == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/state/stepset"

    def test_is_required_if_the_user_has_no_account(self) -> None:
        program = (
            "import os; from stepset.backends.local.runs.settings import home_directory;"
            " os.setuid(54321); home_directory({})"
        )
        if os.getuid() != 0:
            pytest.skip("becoming a user without an account requires root")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == (
            "stepset.errors.BadInputError: STEPSET_HOME: not set, and user 54321 has no home directory;"
            " set it to a directory for runs"
        )


class TestARun:
    def test_is_found_by_its_name_and_by_its_jobs_name(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        for number in (1, 3, 2):
            store.create(status(f"digits-{number}", created=float(number)), JOB)
        assert store.find("digits-2").name == "digits-2"
        assert store.find("digits").name == "digits-3"
        assert [s.name for s in store.list()] == ["digits-3", "digits-2", "digits-1"]

    def test_is_found_by_the_name_of_its_airflow_task(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        for number, dag, task in ((1, "nightly", "fit"), (2, "nightly", "fit"), (3, "weekly", "sweep.fit")):
            made = status(f"fit-{number}", created=float(number)).with_(labels={"dag_id": dag, "task_id": task})
            store.create(made, JOB)
        assert store.find("nightly.fit").name == "fit-2"
        assert store.find("weekly.sweep.fit").name == "fit-3"
        for number, index in ((4, "0"), (5, "1")):
            labels = {"dag_id": "nightly", "task_id": "sweep", "map_index": index}
            store.create(status(f"fit-{number}", created=float(number)).with_(labels=labels), JOB)
        assert store.find("nightly.sweep").name == "fit-5"
        assert store.find("nightly.sweep[0]").name == "fit-4"
        with pytest.raises(RunNotFoundError, match=r"no such run.*; the task of Airflow is called 'nightly\.fit'$"):
            store.find("fit")
        with pytest.raises(RunNotFoundError, match="no such run") as without_task:
            store.find("other")
        assert "Airflow" not in str(without_task.value)
        for name in ("hourly.fit", "nightly.", "nightly.fit[0]", "nightly.sweep[2]"):
            with pytest.raises(RunNotFoundError, match=r"a task of Airflow is called DAG\.TASK"):
                store.find(name)

    def test_that_does_not_exist_has_an_error_with_the_nearest_name(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        store.create(status("digits-1"), JOB)
        job = store.find("digits-1").read().job
        for name, hint in (
            (f"{job[:-1]}x", f"did you mean '{job}'[?] "),
            ("qqqqqq", ""),
            ("digits-11", ".*digits-1'[?] "),
        ):
            with pytest.raises(RunNotFoundError, match=f"of that name; {hint}'stepset list' shows the names of runs"):
                store.find(name)

    @pytest.mark.parametrize("name", ["nope", "", "..", "../runs", ".", 300 * "a", "a\0b", "\udcff"])
    def test_that_does_not_exist_raises_run_not_found(self, tmp_path: Path, name: str) -> None:
        RunStore(tmp_path).create(status(), JOB)
        with pytest.raises(RunNotFoundError, match="no such run"):
            RunStore(tmp_path).find(name)

    def test_has_the_same_state_after_it_was_written_and_read(self, tmp_path: Path) -> None:
        run, _ = RunStore(tmp_path).create(status(), JOB)
        written = status(
            phase=Phase.FAILED,
            ranks=(RankStatus("rank 0", 0, "node-0", exit_code=1, state="Failed", last_line="x\ufffd"),),
            progress=Progress(1, 0.5, {"loss": 0.25}),
            result={"a": [1, None]},
            failure=Failure(FailureKind.USER_ERROR, "m", "a", tail=("x",), aftermath=("rank 1",)),
            notes=("n",),
        )
        run.write(written)
        assert run.read() == written

    def test_cannot_take_the_name_of_another(self, tmp_path: Path) -> None:
        RunStore(tmp_path).create(status(), JOB)
        with pytest.raises(BadInputError, match="run 'digits-1' exists already"):
            RunStore(tmp_path).create(status(), JOB)
        assert [p.name for p in (tmp_path / "runs").iterdir()] == ["digits-1"]

    def test_that_cannot_be_created_is_an_infrastructure_error(self, tmp_path: Path) -> None:
        (tmp_path / "runs").write_text("a file")
        with pytest.raises(InfrastructureError, match="set STEPSET_HOME"):
            RunStore(tmp_path).create(status(), JOB)

    def test_contains_no_value_of_a_secret(self, tmp_path: Path) -> None:
        job = TrainingJob(command=["true"], env={"TOKEN": {"secret": "hub", "key": "token"}})
        run, _ = RunStore(tmp_path).create(status(), job)
        assert json.loads((run.path / "job.json").read_text())["env"]["TOKEN"] == {"secret": "hub", "key": "token"}

    def test_whose_state_cannot_be_read_does_not_hide_the_others(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        store.create(status("digits-1"), JOB)
        broken, _ = store.create(status("digits-2"), JOB)
        (broken.path / "state.json").write_text("{")
        assert [s.name for s in store.list()] == ["digits-1"]
        with pytest.raises(InfrastructureError, match=r"state\.json: cannot be read"):
            broken.read()

    def test_is_removed_when_its_time_to_live_is_over(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        over = {"phase": Phase.SUCCEEDED, "finished": 100.0}
        store.create(status("kept", **over), JOB)
        store.create(status("short", **over), TrainingJob(command=["true"], ttl="1m"))
        assert {s.name: s.expires for s in store.list()} == {"kept": 100.0 + 30 * 86_400, "short": 160.0}
        assert store.prune(PruneRule(), 159.0) == []
        assert [s.name for s in store.prune(PruneRule(), 161.0, dry_run=True)] == ["short"]
        assert {s.name for s in store.list()} == {"kept", "short"}
        assert [s.name for s in store.prune(PruneRule(), 161.0)] == ["short"]
        assert {s.name for s in store.list()} == {"kept"}

    def test_is_removed_by_its_age_only_if_it_is_over(self, tmp_path: Path) -> None:
        store = RunStore(tmp_path)
        store.create(status("good", phase=Phase.SUCCEEDED, finished=100.0), JOB)
        store.create(status("bad", phase=Phase.FAILED, finished=200.0), JOB)
        store.create(status("running", phase=Phase.RUNNING), JOB)
        assert store.prune(PruneRule(older_than=50.0, failed=True), 220.0) == []
        assert [s.name for s in store.prune(PruneRule(older_than=10.0, failed=True), 220.0)] == ["bad"]
        assert [s.name for s in store.prune(PruneRule(older_than=10.0), 220.0)] == ["good"]
        assert {s.name for s in store.list()} == {"running"}


class TestARunWithoutSupervisor:
    def test_is_lost_unless_it_was_over(self, tmp_path: Path) -> None:
        run, lock = RunStore(tmp_path).create(status(phase=Phase.RUNNING, attempt=2), JOB)
        assert run.read().phase is Phase.RUNNING
        os.close(lock)
        lost = run.read()
        assert lost.phase is Phase.LOST
        assert lost.failure is not None
        assert (lost.failure.kind, lost.failure.restarts) == (FailureKind.LOST, 2)
        assert f"pid {os.getpid()}" in lost.failure.message
        assert lost.finished == max((run.path / name).stat().st_mtime for name in ("state.json", "log"))
        run.write(status(phase=Phase.SUCCEEDED))
        assert run.read().phase is Phase.SUCCEEDED

    @pytest.mark.parametrize("submitted", [False, True])
    def test_has_advice_about_kernels_and_terminals_unless_it_was_submitted(
        self, submitted: bool, tmp_path: Path
    ) -> None:
        run, lock = RunStore(tmp_path).create(status(phase=Phase.RUNNING), JOB, submitted=submitted)
        os.close(lock)
        failure = run.read().failure
        assert failure is not None
        assert ("when a notebook's kernel is restarted or a terminal is closed" in failure.advice) is not submitted

    def test_is_lost_when_the_process_was_killed(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path; from stepset.backends.local.runs.store import RunStore\n"
            "from stepset.spec import TrainingJob; from stepset.run_status import RunStatus\n"
            f"store, job = RunStore(Path({str(tmp_path)!r})), TrainingJob(command=['true'])\n"
            "store.create(RunStatus('digits-1', 'digits', 'local'), job)\n"
            "print('made', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "made\n"
            run = RunDir(tmp_path / "runs" / "digits-1")
            assert run.read().phase is Phase.PENDING
            holder.kill()
            holder.wait()
            assert run.read().phase is Phase.LOST

    def test_is_not_alive_although_another_reader_holds_the_lock(self, tmp_path: Path) -> None:
        run, lock = RunStore(tmp_path).create(status(), JOB)
        os.close(lock)
        import fcntl

        with (run.path / "lock").open() as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            assert not run.alive()


def test_a_request_to_cancel_is_counted(tmp_path: Path) -> None:
    run, _ = RunStore(tmp_path).create(status(), JOB)
    assert run.cancel_requests() == 0
    run.request_cancel()
    run.request_cancel()
    assert run.cancel_requests() == 2
