"""Local runs of plain Python scripts, from start to result."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from stepset.backends.local import LocalBackend
from stepset.errors import BadInputError, InfrastructureError, RunNotFoundError
from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RunStatus
from stepset.sources import CODE_LIMIT
from stepset.watch.advice import ADVICE, NO_OUTPUT_ADVICE, STDIN_ADVICE
from stepset.watch.present.presenter import Presenter
from stepset.watch.present.sentences import NOT_FINITE
from tests.local.conftest import Local, RecordingListener, wait_for
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.local


def failure_of(status: RunStatus) -> Failure:
    assert status.failure is not None
    return status.failure


class TestARun:
    def test_succeeds_when_every_rank_has(self, local: Local) -> None:
        status = local.run("print('hello')", num_nodes=2, procs_per_node=2)
        assert (status.phase, status.failure, int(status.exit_code)) == (Phase.SUCCEEDED, None, 0)
        assert [(r.source, r.rank, r.pod, r.state, r.exit_code) for r in status.ranks] == [
            (f"rank {n}", n, f"node-{n // 2}", "Succeeded", 0) for n in range(4)
        ]
        assert status.created <= (status.started or 0) <= (status.finished or 0)
        assert sorted(line.source for line in local.listener.lines) == [f"rank {n}" for n in range(4)]

    def test_has_a_note_if_the_result_contains_a_number_that_json_cannot_express(self, local: Local) -> None:
        write = "import os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write('{\"loss\": [%s]}')"
        status = local.run(write % "NaN")
        assert (status.notes, status.result) == ((NOT_FINITE,), {"loss": [None]})
        assert local.run(write % "0.5").notes == ()

    def test_has_the_result_of_rank_0(self, local: Local) -> None:
        status = local.run(
            """
            import json, os
            with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
                json.dump({"node": os.environ["STEPSET_NODE_RANK"], "accuracy": 0.97}, file)
            """,
            num_nodes=2,
        )
        assert status.result == {"node": "0", "accuracy": 0.97}
        assert local.backend.status(status.name) == status

    def test_gives_each_node_its_own_address(self, local: Local) -> None:
        script = """
            import os, socket
            with socket.create_server((os.environ["IP"], int(os.environ["PORT"]))) as server:
                print(os.environ["IP"], flush=True)
        """
        env = {"IP": {"field": "status.podIP"}, "PORT": "12345"}
        status = local.run(script, num_nodes=3, env=env)
        assert status.phase is Phase.SUCCEEDED
        assert len({line.text for line in local.listener.lines}) == 3

    def test_starts_in_the_jobs_directory_and_imports_from_it(self, local: Local) -> None:
        local.path("helper.py").write_text("NAME = 'helper'")
        local.run("import helper, os; print(helper.NAME, os.getcwd())")
        assert local.texts("rank 0") == [f"helper {local.directory}"]

    def test_imports_a_module_that_is_too_large_to_be_shipped(self, local: Local) -> None:
        local.path("helper.py").write_text(f"NAME = 'helper'\nDATA = {os.urandom(CODE_LIMIT).hex()!r}")
        assert local.run("import helper; print(helper.NAME)").phase is Phase.SUCCEEDED
        assert local.texts("rank 0") == ["helper"]

    def test_with_code_starts_in_the_code_directory(self, local: Local) -> None:
        local.path("src").mkdir()
        local.path("src", "main.py").write_text("import os; print(os.getcwd())")
        local.run("", script="src/main.py", code="src")
        assert local.texts("rank 0") == [str(local.path("src"))]

    def test_with_code_notes_what_a_cluster_would_not_get(self, local: Local) -> None:
        local.path("src").mkdir()
        local.path("src", "main.py").write_text("print('trained')")
        local.path("src", "data.bin").write_text("1")
        local.path("src", ".stepsetignore").write_text("*.bin")
        status = local.run("", script="src/main.py", code="src")
        assert [note for note in status.notes if note.startswith("code:")] == [
            "code: 1 file is ignored because of .stepsetignore; `stepset explain --files` lists what is shipped"
        ]

    def test_of_a_function_needs_no_file(self, local: Local) -> None:
        status = local.run("", script=None, function="print('from a function')")
        assert status.phase is Phase.SUCCEEDED
        assert local.texts("rank 0") == ["from a function"]

    def test_of_a_module_imports_it_from_the_jobs_directory(self, local: Local) -> None:
        local.path("mine.py").write_text("import sys; print(sys.argv[1:])")
        local.run("", script=None, module="mine", args=["--x", "1"])
        assert local.texts("rank 0") == ["['--x', '1']"]

    def test_of_any_command_has_ranks(self, local: Local) -> None:
        status = local.run("", script=None, command=["sh", "-c", "echo $STEPSET_NODE_RANK"], num_nodes=2)
        assert [r.source for r in status.ranks] == ["rank 0", "rank 1"]
        assert (local.texts("rank 0"), local.texts("rank 1")) == (["0"], ["1"])

    def test_may_have_any_home_directory(self, local: Local) -> None:
        home = local.directory / os.fsdecode(b"a home \n of \xff bytes")
        status = LocalBackend(home).start(local.request("print('here')", num_nodes=2), local.listener).wait()
        assert status.phase is Phase.SUCCEEDED
        assert [line.text for line in LocalBackend(home).logs(status.name)] == ["here", "here"]

    def test_creates_its_checkpoint_directory(self, local: Local) -> None:
        directory = local.path("deep", "er")
        local.run("import os; print(os.listdir(os.environ['STEPSET_CHECKPOINT_DIR']))", checkpoint_dir=str(directory))
        assert local.texts("rank 0") == ["[]"]

    def test_has_a_note_if_its_processes_outnumber_the_cores(self, local: Local) -> None:
        status = local.run("", procs_per_node=1)
        assert status.notes == ()
        many = local.run("", script=None, command=["true"], procs_per_node=65)
        assert any("65 processes share" in note for note in many.notes)
        assert many.phase is Phase.SUCCEEDED

    def test_has_no_such_note_if_each_process_has_a_gpu(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(65))))
        assert local.run("", script=None, command=["true"], procs_per_node=65).notes == ()

    def test_writes_its_secrets_to_no_file(self, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STEPSET_SECRET_HUB_TOKEN", "hush-hush")
        local.run("import os; print(len(os.environ['T']))", env={"T": {"secret": "hub", "key": "token"}})
        assert local.texts("rank 0") == ["9"]
        files = [p for p in local.home.rglob("*") if p.is_file()]
        assert files and not [p for p in files if b"hush-hush" in p.read_bytes()]


class TestRoles:
    def test_before_the_world_complete_first(self, local: Local) -> None:
        prepare = {"name": "prepare", "before": True, "command": ["sh", "-c", "sleep 0.3; echo ready > data"]}
        status = local.run("print(open('data').read().strip())", roles=[prepare], num_nodes=2)
        assert status.phase is Phase.SUCCEEDED
        assert local.texts("rank 1") == ["ready"]
        assert [(r.source, r.rank, r.state) for r in status.ranks][-1] == ("prepare-0", None, "Succeeded")

    def test_that_fail_before_the_world_fail_the_run_and_the_world_never_starts(self, local: Local) -> None:
        prepare = {"name": "prepare", "before": True, "command": ["sh", "-c", "echo no data >&2; exit 3"]}
        status = local.run("open('started', 'w')", roles=[prepare])
        assert status.phase is Phase.FAILED and status.failure is not None
        assert (status.failure.pod, status.failure.exit_code, status.failure.rank) == ("prepare-0", 3, None)
        assert "no data" in status.failure.tail
        assert not local.path("started").exists()

    def test_beside_the_world_are_stopped_when_the_world_has_ended(self, local: Local) -> None:
        monitor = {"name": "monitor", "command": ["sh", "-c", "touch watching; exec sleep 600"]}
        script = "import os, time\nwhile not os.path.exists('watching'):\n    time.sleep(0.02)"
        status = local.run(script, roles=[monitor])
        assert status.phase is Phase.SUCCEEDED
        assert [(r.source, r.state) for r in status.ranks] == [("rank 0", "Succeeded"), ("monitor-0", "Stopped")]


class TestOutput:
    def test_has_every_line_once_with_any_bytes(self, local: Local) -> None:
        script = """
            import os, sys
            rank = os.environ["STEPSET_NODE_RANK"].encode()
            for n in range(500):
                os.write(1, b"line %d of %s\\n" % (n, rank))
            os.write(2, b"\\xff\\xfe invalid\\n")
            os.write(1, b"m" * 2_500_000 + b"\\n")
            os.write(1, b"no newline at the end")
        """
        status = local.run(script, num_nodes=2)
        for rank in ("0", "1"):
            expected = [*(f"line {n} of {rank}" for n in range(500)), "\ufffd\ufffd invalid", "m" * 2_500_000]
            expected.append("no newline at the end")
            assert local.texts(f"rank {rank}") == expected
            logged = local.backend.logs(status.name, sources=frozenset({f"rank {rank}"}))
            assert [line.text for line in logged] == expected
            raw = (local.home / "runs" / status.name / "ranks" / f"rank-{rank}.log").read_bytes()
            assert raw.split(b"\n")[500:] == [b"\xff\xfe invalid", b"m" * 2_500_000, b"no newline at the end", b""]

    def test_is_complete_for_a_slow_listener(self, local: Local) -> None:
        class Slow(RecordingListener):
            def on_line(self, line: LogLine) -> None:
                if len(self.lines) in (0, 20_000):
                    time.sleep(1)
                super().on_line(line)

        local.listener = Slow()
        status = local.run("for n in range(30_000): print(f'line {n} ' + 'x' * 80)", procs_per_node=2)
        for source in ("rank 0", "rank 1"):
            assert local.texts(source) == [f"line {n} " + "x" * 80 for n in range(30_000)]
        assert sum(1 for _ in local.backend.logs(status.name)) == 60_000

    def test_reports_progress_again_after_a_second_for_interfaces_that_omit_frequent_progress(
        self, local: Local
    ) -> None:
        class Presenting(RecordingListener):
            def __init__(self) -> None:
                super().__init__()
                self.presenter, self.texts = Presenter(), list[str]()

            def on_status(self, status: RunStatus) -> None:
                self.texts += [record.text for record in self.presenter.see(status, time.monotonic())]

        local.listener = listener = Presenting()
        script = """
            import json, time
            for step in (1, 2):
                print(json.dumps({"stepset": {"step": step}}), flush=True)
                time.sleep(0.3)
            time.sleep(600)
        """
        handle = local.start(script)
        found = until(lambda: "progress: step 2" in listener.texts, 60)
        handle.cancel()
        handle.wait()
        assert found, listener.texts

    def test_reports_progress_immediately_and_not_as_lines(self, local: Local) -> None:
        class Seeing(RecordingListener):
            def on_status(self, status: RunStatus) -> None:
                super().on_status(status)
                if status.progress and status.progress.step == 1:
                    local.path("seen").touch()

        local.listener = Seeing()
        script = """
            import json, os, time
            for step in (1, 2):
                print(json.dumps({"stepset": {"step": step, "progress": step / 2, "metrics": {"loss": 1 / step}}}))
                while not os.path.exists("seen"):
                    time.sleep(0.02)
            print("done")
        """
        status = local.run(script)
        assert status.progress == Progress(2, 1.0, {"loss": 0.5})
        assert Progress(1, 0.5, {"loss": 1.0}) in [s.progress for s in local.listener.statuses]
        assert local.texts("rank 0") == ["done"]
        raw = (local.home / "runs" / status.name / "ranks" / "rank-0.log").read_text().splitlines()
        assert len(raw) == 3 and json.loads(raw[0])["stepset"]["step"] == 1

    def test_is_in_the_status_as_each_ranks_last_line(self, local: Local) -> None:
        status = local.run("print('a'); print('b')", num_nodes=2)
        assert [row.last_line for row in status.ranks] == ["b", "b"]

    def test_can_be_followed_by_another_reader(self, local: Local) -> None:
        handle = local.start("import time\nfor n in range(5):\n    print(n, flush=True)\n    time.sleep(0.1)")
        followed: list[LogLine] = []
        reader = threading.Thread(target=lambda: followed.extend(local.backend.logs(handle.name, follow=True)))
        reader.start()
        handle.wait()
        reader.join(LIMIT)
        assert followed == [LogLine("rank 0", str(n)) for n in range(5)]


@pytest.mark.parametrize("call", ["input()", "breakpoint()"])
def test_the_advice_states_that_ranks_have_no_stdin(local: Local, call: str) -> None:
    failure = local.run(f"{call}\nprint('trained')").failure
    assert failure is not None
    assert failure.advice == STDIN_ADVICE


class TestRunsAtOnce:
    SCRIPT = """
        import os, socket, time
        print(os.environ["HERE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["RANK"] == "0":
            with socket.create_server(address) as server:
                for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
                    with server.accept()[0] as peer:
                        assert peer.recv(100).decode() == os.environ["STEPSET_RUN"]
        else:
            while True:
                try:
                    with socket.create_connection(address) as peer:
                        peer.send(os.environ["STEPSET_RUN"].encode())
                        break
                except ConnectionRefusedError:
                    time.sleep(0.02)
    """

    def test_never_collide(self, local: Local) -> None:
        torch = {"kind": "torch", "launcher": "none"}
        job = {"framework": torch, "num_nodes": 2, "procs_per_node": 2, "env": {"HERE": {"field": "status.podIP"}}}
        handles = [local.start(self.SCRIPT, **job) for _ in range(3)]
        statuses = [handle.wait() for handle in handles]
        assert [s.phase for s in statuses] == [Phase.SUCCEEDED] * 3
        assert len({s.name for s in statuses}) == 3
        assert [row.node for row in statuses[0].ranks] == ["node 0", "node 0", "node 1", "node 1"]
        assert len({line.text for s in statuses for line in local.backend.logs(s.name)}) == 6

    def test_cannot_have_the_same_name(self, local: Local) -> None:
        local.run("", name="mine")
        with pytest.raises(BadInputError, match="run 'mine' exists already"):
            local.start("", name="mine")
        assert local.backend.status("mine").phase is Phase.SUCCEEDED


class TestABadRequest:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"name": "Not A Label"}, "name: 'Not A Label' is not a DNS-1035 label"),
            ({"env": {"T": {"secret": "hub", "key": "k"}}}, "env.T: secret 'hub' has no key 'k'"),
            ({"script": None, "command": ["no-such-program"]}, "command: 'no-such-program' is not found"),
            ({"checkpoint_dir": "/proc/nowhere"}, "checkpoint_dir: /proc/nowhere cannot be created"),
        ],
    )
    def test_is_refused_before_anything_is_created(self, local: Local, fields: dict[str, object], message: str) -> None:
        with pytest.raises(BadInputError, match=message):
            local.start("", **fields)
        assert not local.home.exists()

    def test_with_an_impossible_home_is_an_infrastructure_error(self, local: Local) -> None:
        local.home.write_text("a file")
        with pytest.raises(InfrastructureError, match="set STEPSET_HOME"):
            local.start("")

    def test_for_an_unknown_run_raises_run_not_found(self, local: Local) -> None:
        for method in (local.backend.status, local.backend.wait, local.backend.cancel, local.backend.logs):
            with pytest.raises(RunNotFoundError):
                method("nope")


class TestARunInAnotherThread:
    def test_is_found_by_its_jobs_name_while_it_runs(self, local: Local) -> None:
        handle = local.start("import pathlib; open('up', 'w').write('1'); input()", script="train.py")
        # input() fails at once: ranks have no standard input.
        assert handle.wait().failure is not None
        assert local.backend.status("job").name == handle.name

    def test_can_be_waited_for_with_a_timeout(self, local: Local) -> None:
        handle = local.start("import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.02)")
        assert until(lambda: local.backend.status(handle.name).phase is Phase.RUNNING)
        assert local.backend.wait(handle.name, timeout=0.05).phase is Phase.RUNNING
        local.path("go").touch()
        assert local.backend.wait(handle.name).phase is Phase.SUCCEEDED

    def test_can_be_cancelled(self, local: Local) -> None:
        script = "import os, time; open('up-' + os.environ['STEPSET_NODE_RANK'], 'w').write('1'); time.sleep(600)"
        handle = local.start(script, num_nodes=2)
        for node in (0, 1):
            wait_for(local.path(f"up-{node}"))
        assert until(lambda: local.backend.status("job").phase is Phase.RUNNING)
        assert local.backend.cancel("job").phase is Phase.RUNNING
        status = handle.wait()
        assert status.phase is Phase.FAILED and status.failure is not None
        assert (status.failure.kind, int(status.exit_code)) == (FailureKind.CANCELLED, 130)
        assert {row.state for row in status.ranks} == {"Stopped"}
        assert local.backend.cancel("job") == status

    def test_is_listed_with_all_others(self, local: Local) -> None:
        first, second = local.run(""), local.run("import sys; sys.exit(1)")
        assert [(s.name, s.phase) for s in local.backend.list()] == [
            (second.name, Phase.FAILED),
            (first.name, Phase.SUCCEEDED),
        ]


def test_an_exception_of_the_listener_stops_the_run_and_is_raised(local: Local) -> None:
    class Broken:
        def on_line(self, line: LogLine) -> None:
            raise BrokenPipeError("no reader")

        def on_status(self, status: object) -> None:
            pass

    handle = local.backend.start(local.request("import time; print('x', flush=True); time.sleep(600)"), Broken())
    with pytest.raises(BrokenPipeError, match="no reader"):
        handle.wait()
    status = local.backend.status(handle.name)
    assert status.phase is Phase.FAILED and status.failure is not None
    assert "cancelled: its listener raised BrokenPipeError('no reader'); " in status.failure.message


def test_the_python_interface_runs_a_mapping(local: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import stepset

    monkeypatch.setenv("STEPSET_HOME", str(local.home))
    (tmp_path / "train.py").write_text("import sys; sys.exit(5)")
    with pytest.raises(stepset.TrainingFailedError, match="exited with code 5") as failed:
        stepset.run({"framework": "plain", "script": "train.py"}, base_dir=tmp_path)
    assert failed.value.exit_code == 1


def test_the_advice_for_a_signal_names_a_command_and_without_output_there_is_nothing_to_look_at(local: Local) -> None:
    killed = failure_of(local.run("import os; os.kill(os.getpid(), 9)"))
    assert "`dmesg | grep -i oom`" in killed.advice and "events" not in killed.advice
    stopped = failure_of(local.run("import os; os.kill(os.getpid(), 15)"))
    assert "os.kill" in stopped.advice and "dmesg" not in stopped.advice  # the kernel sends no SIGTERM
    silent = failure_of(local.run("import sys; sys.exit(3)"))
    assert (silent.exit_code, silent.tail, silent.advice) == (3, (), NO_OUTPUT_ADVICE)
    spoken = failure_of(local.run("import sys; print('shard 3 is bad'); sys.exit(3)"))
    assert spoken.advice == ADVICE[FailureKind.USER_ERROR]


@pytest.mark.parametrize(
    ("call", "number", "name"),
    [("ctypes.string_at(0)", signal.SIGSEGV, "Segmentation fault"), ("os.abort()", signal.SIGABRT, "Aborted")],
)
def test_a_crash_names_the_first_frame_of_the_script_and_no_extension_modules(
    local: Local, call: str, number: int, name: str
) -> None:
    script = f"""
        import ctypes, os, pydantic_core
        def load_shard():
            {call}
        load_shard()
    """
    failure = failure_of(local.run(script))
    assert failure.signal == number
    assert re.fullmatch(rf'Fatal Python error: {name}: File ".*train\.py", line 4 in load_shard', failure.error)
    assert failure.tail and not any("Extension modules" in line for line in failure.tail)
