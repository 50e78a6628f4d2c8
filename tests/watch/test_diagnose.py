"""`diagnose` derives one Failure from observed ends: it names what failed first, and not what failed as a result."""

import signal

import pytest

from stepset.run_status import Failure, FailureKind, RankStatus, RunStatus
from stepset.watch.advice import ADVICE, SIGNAL_ADVICE, STDIN_ADVICE, early_exit_advice
from stepset.watch.diagnose import TAIL, Observation, diagnose, find_error, kind_of
from stepset.watch.tracebacks import stuck_rank


def rank(number: int, at: float, **known: object) -> Observation:
    return Observation(f"rank {number}", at, rank=number, pod=f"node-{number // 2}", **known)  # type: ignore[arg-type]


def failure_of(*observations: Observation) -> Failure:
    failure = diagnose(observations)
    assert failure is not None
    return failure


class TestFirstFailure:
    def test_is_the_earliest_in_any_order_of_observations(self) -> None:
        late, early = rank(0, 5.0, exit_code=1), rank(3, 4.0, exit_code=7, error="ValueError: bad")
        for order in ([late, early], [early, late]):
            failure = failure_of(*order)
            assert (failure.rank, failure.pod, failure.exit_code) == (3, "node-1", 7)
            assert failure.message == "rank 3 (pod node-1) exited with code 7: ValueError: bad"
            assert failure.aftermath == ("rank 0",)

    def test_lists_what_ended_because_of_it_by_rank_then_by_pod(self) -> None:
        later = [Observation(source, 6.0 - n, pod=source.replace(" ", "-"), stopped=True)
                 for n, source in enumerate(("prepare-10", "launcher", "node 10", "prepare-9", "node 9"))]  # fmt: skip
        ranks = [rank(number, 9.0 - number, exit_code=1) for number in (2, 11, 10, 1)]
        failure = failure_of(rank(3, -3.0, exit_code=1), *later, *ranks)
        assert failure.aftermath == (
            "rank 1", "rank 2", "rank 10", "rank 11", "launcher", "node 9", "node 10", "prepare-9", "prepare-10"
        )  # fmt: skip

    def test_lists_the_ranks_that_failed_with_the_same_error_separately(self) -> None:
        error = "ImportError: no module"
        traceback = ("Traceback (most recent call last):", '  File "a.py", line 1', error)
        failure = failure_of(
            rank(3, 1.0, exit_code=1, error=error),
            rank(0, 1.1, exit_code=1, tail=traceback, stopped=True),
            rank(1, 1.2, signal=signal.SIGTERM, tail=traceback, stopped=True),  # stopped while it exited
            rank(2, 1.2, signal=signal.SIGTERM, tail=(error, "epoch 2"), stopped=True),
            rank(4, 1.3, exit_code=1, error="ValueError: other"),
        )
        assert (failure.rank, failure.same_error, failure.aftermath) == (3, ("rank 0", "rank 1"), ("rank 2", "rank 4"))

    @pytest.mark.parametrize(
        "error", ["ConnectionResetError: Connection reset by peer", "RuntimeError: Timed out waiting 5000ms for recv"]
    )
    def test_of_a_rank_without_its_peer_names_the_rank_that_had_exited_before(self, error: str) -> None:
        exited = [rank(number, at, exit_code=0, succeeded=True) for number, at in ((3, 1.0), (2, 1.5), (1, 9.0))]
        failure = failure_of(*exited, rank(0, 4.0, exit_code=1, error=error))
        message = f"rank 0 (pod node-0) exited with code 1, 3 s after rank 3 had exited with code 0: {error}"
        assert (failure.message, failure.aftermath) == (message, ())
        assert (failure.advice, failure.early_exit) == (early_exit_advice("rank 3"), 3)
        other = failure_of(*exited, rank(0, 4.0, exit_code=1, error="ValueError: bad"))
        assert other.message == "rank 0 (pod node-0) exited with code 1: ValueError: bad"

    def test_is_not_a_rank_that_exited_with_code_0(self) -> None:
        assert diagnose([rank(0, 1.0, exit_code=0, succeeded=True)]) is None
        again = failure_of(rank(0, 1.0, exit_code=0, succeeded=True), rank(0, 2.0, exit_code=1))
        assert (again.rank, again.exit_code) == (0, 1)

    def test_is_not_a_rank_that_was_stopped_even_if_it_ended_earlier(self) -> None:
        failure = failure_of(rank(0, 1.0, signal=signal.SIGTERM, stopped=True), rank(1, 2.0, exit_code=1))
        assert failure.rank == 1

    @pytest.mark.parametrize(
        "error",
        [
            "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:34567",
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
            "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        ],
    )
    def test_is_not_a_rank_that_only_lost_its_peer(self, error: str) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=1, error=error), rank(1, 1.5, signal=signal.SIGSEGV))
        assert failure.rank == 1
        assert failure.aftermath == ("rank 0",)

    def test_is_not_a_rank_that_its_launcher_stopped(self) -> None:
        failure = failure_of(rank(0, 1.0, signal=signal.SIGTERM), rank(1, 1.2, exit_code=1))
        assert failure.rank == 1

    def test_is_a_rank_whose_port_was_in_use_even_if_another_lost_a_peer_earlier(self) -> None:
        lost_peer = rank(1, 1.0, exit_code=1, error="ConnectionResetError: Connection reset by peer")
        assert failure_of(lost_peer, rank(0, 1.5, exit_code=1, error="EADDRINUSE")).rank == 0

    def test_is_a_rank_that_lost_its_peer_if_no_other_failed(self) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=1, error="Connection reset by peer"))
        assert failure.rank == 0

    def test_has_no_aftermath_of_the_same_known_kind(self) -> None:
        gave_up = {"exit_code": 70, "kind": FailureKind.RENDEZVOUS, "error": "node-1 did not resolve"}
        failure = failure_of(rank(0, 1.0, **gave_up), rank(2, 1.0, **gave_up), rank(4, 1.5, exit_code=1))
        assert (failure.rank, failure.aftermath) == (0, ("rank 4",))

    def test_is_the_rank_and_not_its_pod(self) -> None:
        node = Observation("node 1", 1.0, pod="node-1", exit_code=1)
        failure = failure_of(node, rank(3, 1.0, exit_code=7))
        assert (failure.rank, failure.exit_code) == (3, 7)
        assert failure.aftermath == ()

    @pytest.mark.parametrize("code", [126, 127])
    def test_advises_to_check_the_command_if_the_program_is_missing(self, code: int) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=code, error="cannot start torchrun: not found on PATH"))
        assert failure.kind is FailureKind.USER_ERROR
        assert failure.advice == "Check the command, and that its program is executable and on the image's PATH."

    @pytest.mark.parametrize(
        "error",
        [
            "KeyError: 'RANK'",
            "KeyError: 'LOCAL_RANK'",
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK"
            " expected, but not set",
        ],
    )
    def test_without_variables_of_torch_has_advice_that_names_those_of_stepset(self, error: str) -> None:
        assert "STEPSET_NODE_RANK and STEPSET_NUM_NODES" in failure_of(rank(0, 1.0, exit_code=1, error=error)).advice
        assert "STEPSET_NODE_RANK" not in failure_of(rank(0, 1.0, exit_code=1, error="KeyError: 'ranks'")).advice

    def test_of_the_run_does_not_count_the_rank_that_it_names_as_a_consequence(self) -> None:
        late = Observation("", 1.0, kind=FailureKind.DEADLINE_EXCEEDED, rank=1, how="the run took longer")
        failure = failure_of(late, rank(0, 2.0, signal=15, stopped=True), rank(1, 2.0, signal=15, stopped=True))
        assert (failure.rank, failure.aftermath) == (1, ("rank 0",))

    def test_of_a_thread_at_the_end_of_the_program_names_the_call_that_ends_the_thread(self) -> None:
        aborted = rank(0, 1.0, signal=signal.SIGABRT, error="terminate called without an active exception")
        assert "call torch.distributed.destroy_process_group()" in failure_of(aborted).advice
        assert "search the training code for sys.exit and an early return" in failure_of(aborted).advice

    @pytest.mark.parametrize("error", ["EOFError: EOF when reading a line", "bdb.BdbQuit"])
    def test_advises_that_ranks_have_no_stdin(self, error: str) -> None:
        tail = ("Traceback (most recent call last):", error)
        for seen in (rank(0, 1.0, exit_code=1, error=error), rank(0, 1.0, exit_code=1, tail=tail)):
            failure = failure_of(seen)
            assert (failure.error, failure.kind, failure.advice) == (error, FailureKind.USER_ERROR, STDIN_ADVICE)
        other = failure_of(rank(0, 1.0, exit_code=1, error="EOFError: Ran out of input"))
        assert other.advice == ADVICE[FailureKind.USER_ERROR]

    @pytest.mark.parametrize(
        ("error", "remedy"),
        [
            ("KeyError: 'STEPSET_CHECKPOINT_DIR'", "The job has no checkpoint_dir: set checkpoint_dir"),
            ("KeyError: 'STEPSET_RESUME_FROM'", "set only if the checkpoint_dir of the job contains a checkpoint"),
            ("ModuleNotFoundError: No module named 'einops'", "add it to requirements, which uv installs"),
            ("IsADirectoryError: [Errno 21] Is a directory: '/ckpt'", "the directory checkpoint_dir, not one of"),
            ("ValueError: Can't find a valid checkpoint at /ckpt", "the directory checkpoint_dir, not one of"),
            ("train.py: error: the following arguments are required: --lr", "Change the arguments of the program"),
        ],
    )
    def test_advises_how_to_correct_a_known_error(self, error: str, remedy: str) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=1, error=error))
        assert failure.kind is FailureKind.USER_ERROR
        assert remedy in failure.advice
        assert len(failure.advice) < 250, "a terminal shows the advice in a few lines"

    def test_a_full_gpu_needs_no_memory_of_the_node(self) -> None:
        error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        failure = failure_of(rank(0, 1.0, exit_code=1, error=error))
        assert (failure.kind, "smaller batch" in failure.advice) == (FailureKind.OUT_OF_MEMORY, True)
        assert "more memory of the node does not help" in failure.advice
        host = failure_of(rank(0, 1.0, exit_code=1, error="MemoryError: unable to allocate 2.00 GiB"))
        assert host.advice == ADVICE[FailureKind.OUT_OF_MEMORY]

    def test_is_the_pod_if_no_rank_is_known(self) -> None:
        failure = failure_of(Observation("prepare-0", 1.0, pod="prepare-0", exit_code=3))
        assert (failure.rank, failure.pod, failure.exit_code) == (None, "prepare-0", 3)
        assert failure.message.startswith("prepare-0 exited with code 3")

    def test_is_the_run_if_the_run_as_a_whole_failed(self) -> None:
        failure = failure_of(
            rank(0, 1.0, exit_code=1),
            Observation("", 2.0, kind=FailureKind.DEADLINE_EXCEEDED, error="the run took longer than 2s."),
        )
        assert (failure.kind, failure.rank) == (FailureKind.DEADLINE_EXCEEDED, None)
        assert failure.message == "the run took longer than 2s."

    def test_does_not_exist_if_nothing_failed(self) -> None:
        assert diagnose([]) is None
        assert diagnose([rank(0, 1.0, signal=15, stopped=True)]) is None


class TestObservationsOfOneEnd:
    def test_are_merged(self) -> None:
        failure = failure_of(
            rank(2, 1.0, exit_code=5),
            rank(2, 1.4, exit_code=1, error="KeyError: 'x'", tail=("a", "KeyError: 'x'")),
            rank(2, 1.6, kind=FailureKind.REJECTED),
        )
        assert (failure.exit_code, failure.error, failure.kind) == (5, "KeyError: 'x'", FailureKind.REJECTED)
        assert failure.tail == ("a", "KeyError: 'x'")
        assert failure.aftermath == ()

    def test_are_one_failure_if_the_pod_was_also_stopped(self) -> None:
        """The launcher reports the end of a rank in another pod, which is then deleted with the rest of the gang."""
        stopped = rank(2, 0.9, exit_code=143, stopped=True, how="was stopped")
        for order in ((stopped, rank(2, 1.0, exit_code=5)), (rank(2, 1.0, exit_code=5), stopped)):
            failure = failure_of(*order)
            assert (failure.rank, failure.exit_code) == (2, 5)
            assert failure.message == "rank 2 (pod node-1) exited with code 5."


class TestMessage:
    def test_names_the_node_unless_it_has_the_name_of_the_pod(self) -> None:
        assert failure_of(rank(0, 1.0, exit_code=1, node="gpu-7")).message == (
            "rank 0 (pod node-0 on gpu-7) exited with code 1."
        )
        assert failure_of(rank(0, 1.0, exit_code=1, node="node 0")).message == (
            "rank 0 (pod node-0) exited with code 1."
        )

    @pytest.mark.parametrize(
        ("code", "words", "kind"),
        [
            (139, "exited with code 139 (SIGSEGV).", FailureKind.USER_ERROR),
            (143, "exited with code 143 (SIGTERM); who sent the signal is unknown.", FailureKind.INFRASTRUCTURE),
            (137, "exited with code 137 (SIGKILL), most likely out of memory.", FailureKind.OUT_OF_MEMORY),
            (255, "exited with code 255.", FailureKind.USER_ERROR),
        ],
    )
    def test_names_the_signal_of_an_exit_code(self, code: int, words: str, kind: FailureKind) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=code))
        assert (failure.kind, failure.message) == (kind, f"rank 0 (pod node-0) {words}")

    def test_names_the_last_line_of_a_process_that_exits_without_an_error(self) -> None:
        """For example after `raise SystemExit("the data set is empty")`."""
        seen = failure_of(rank(0, 1.0, exit_code=1, tail=("epoch 1", "[rank0]: the data set is empty", "", "=====")))
        assert seen.message == "rank 0 (pod node-0) exited with code 1; its last line: the data set is empty"
        assert seen.error == ""

    def test_does_not_present_the_last_line_as_the_reason_of_a_signal(self) -> None:
        assert "epoch" not in failure_of(rank(0, 1.0, signal=9, tail=("epoch 1",))).message

    @pytest.mark.parametrize("line", ["ERROR:root:shard 17 is bad", "06:27:19 - train - CRITICAL - shard 17 is bad"])
    def test_names_the_last_error_that_was_logged(self, line: str) -> None:
        seen = failure_of(rank(0, 1.0, exit_code=1, tail=("ERROR:root:retrying", line, "INFO:root:bye")))
        assert (seen.message, seen.error) == (f"rank 0 (pod node-0) exited with code 1: {line}", line)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_states_that_the_sender_of_a_signal_is_unknown(self, number: int) -> None:
        seen = failure_of(rank(0, 1.0, signal=number, out_of_memory=False))
        assert seen.message.endswith("; who sent the signal is unknown.") and "outside" not in seen.message
        assert seen.advice == SIGNAL_ADVICE

    def test_states_what_happened_to_the_pod_if_known(self) -> None:
        evicted = rank(0, 1.0, how="was evicted", error="low on memory", kind=FailureKind.INFRASTRUCTURE, exit_code=143)
        assert failure_of(evicted).message == "rank 0 (pod node-0) was evicted: low on memory"


class TestKind:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ("ValueError: bad learning rate", FailureKind.USER_ERROR),
            ("ModuleNotFoundError: No module named 'foo'", FailureKind.USER_ERROR),
            ("MemoryError", FailureKind.OUT_OF_MEMORY),
            (
                "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB for an array",
                FailureKind.OUT_OF_MEMORY,
            ),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FailureKind.OUT_OF_MEMORY),
            ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", FailureKind.OUT_OF_MEMORY),
            ("terminate called after throwing an instance of 'std::bad_alloc'", FailureKind.OUT_OF_MEMORY),
            ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory", FailureKind.OUT_OF_MEMORY),
            ("OSError: [Errno 98] Address already in use", FailureKind.RENDEZVOUS),
            ("The server socket has failed to listen on any local address. EADDRINUSE", FailureKind.RENDEZVOUS),
            (
                "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients.",
                FailureKind.RENDEZVOUS,
            ),
            ("socket.gaierror: [Errno -2] Name or service not known", FailureKind.RENDEZVOUS),
            ("RendezvousTimeoutError", FailureKind.RENDEZVOUS),
            (
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network"
                " address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
                FailureKind.RENDEZVOUS,
            ),
            ("OSError: [Errno 28] No space left on device", FailureKind.INFRASTRUCTURE),
            ("OSError: [Errno 122] Disk quota exceeded", FailureKind.INFRASTRUCTURE),
        ],
    )
    def test_follows_from_the_error(self, error: str, kind: FailureKind) -> None:
        assert failure_of(rank(0, 1.0, exit_code=1, error=error)).kind is kind
        # The same if the error is only in the last lines.
        assert failure_of(rank(0, 1.0, exit_code=1, tail=("epoch 1", error))).kind is kind

    @pytest.mark.parametrize("how", [{"signal": 9}, {"exit_code": 137}])
    @pytest.mark.parametrize(
        ("oom_killer", "kind"),
        [(True, FailureKind.OUT_OF_MEMORY), (False, FailureKind.INFRASTRUCTURE), (None, FailureKind.OUT_OF_MEMORY)],
    )
    def test_of_a_sigkill_depends_on_the_oom_killer(
        self, how: dict[str, int], oom_killer: bool | None, kind: FailureKind
    ) -> None:
        seen = rank(0, 1.0, out_of_memory=oom_killer, tail=("ValueError: caught and printed",), **how)
        assert kind_of(seen) is kind

    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
    def test_of_a_crash_is_user_error(self, number: int) -> None:
        failure = failure_of(rank(0, 1.0, signal=number))
        assert failure.kind is FailureKind.USER_ERROR
        assert signal.Signals(number).name in failure.message

    def test_of_a_signal_from_outside_is_infrastructure(self) -> None:
        assert failure_of(rank(0, 1.0, signal=signal.SIGTERM)).kind is FailureKind.INFRASTRUCTURE

    def test_is_that_of_the_observation_if_set(self) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=72, error="the result has 9000 bytes", kind=FailureKind.REJECTED))
        assert failure.kind is FailureKind.REJECTED

    @pytest.mark.parametrize("kind", list(FailureKind))
    def test_has_one_sentence_of_advice(self, kind: FailureKind) -> None:
        assert ADVICE[kind].endswith(".") and "\n" not in ADVICE[kind]
        assert failure_of(rank(0, 1.0, kind=kind)).advice == ADVICE[kind]


class TestErrorInOutput:
    def test_is_the_last_exception(self) -> None:
        lines = [
            "Traceback (most recent call last):",
            "  x()",
            "KeyError: 1",
            "",
            "During handling ...",
            "my.Error: 2",
            "bye",
        ]
        assert find_error(lines) == "my.Error: 2"

    def test_is_empty_without_an_error(self) -> None:
        assert find_error(["epoch 1", "no Error here: fine"]) == ""


IGNORED = (
    "Exception ignored in: <function tqdm.__del__ at 0x7f6b7c1c5d00>",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3/site-packages/tqdm/std.py", line 1148, in __del__',
    "AttributeError: 'tqdm_notebook' object has no attribute 'disp'",
)


def test_an_exception_that_python_ignored_is_not_the_error() -> None:
    error = ("Traceback (most recent call last):", '  File "t.py", line 2, in f', "ImportError: IProgress not found")
    failure = failure_of(rank(0, 1.0, exit_code=1, tail=(*error, *IGNORED)))
    assert (failure.error, failure.frame) == ("ImportError: IProgress not found", "t.py, line 2, in f")
    assert failure_of(rank(0, 1.0, exit_code=3, tail=IGNORED)).error == ""


def test_a_running_rank_with_an_exception_that_python_ignored_is_not_stuck() -> None:
    running = RankStatus("rank 0", 0, "pod", state="Running", last_line_at=0.0)
    status = RunStatus("run", "run", "local", ranks=(running,))
    assert stuck_rank(status, lambda source: IGNORED, 60.0) is None


def test_the_tail_has_only_the_last_lines() -> None:
    tail = failure_of(rank(0, 1.0, exit_code=1, tail=tuple(f"line {n}" for n in range(100)))).tail
    assert tail[-1] == "line 99" and len(tail) == 20


def test_restarts_and_events_are_part_of_the_failure() -> None:
    failure = diagnose([rank(0, 1.0, exit_code=1)], restarts=2, events=["Evicted: low on memory"])
    assert failure is not None and (failure.restarts, failure.events) == (2, ("Evicted: low on memory",))


def test_a_crash_has_the_first_frame_of_the_script_and_no_extension_modules() -> None:
    error = "Fatal Python error: Segmentation fault"
    stack = (
        "Current thread 0x00007f10 (most recent call first):",
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 3 in load',
        '  File "/work/train.py", line 4 in load_shard',
        '  File "/work/train.py", line 9 in <module>',
    )
    tail = (error, *stack, "Extension modules: numpy.core._multiarray_umath, yaml._yaml (total: 2)")
    failure = failure_of(rank(0, 1.0, signal=signal.SIGSEGV, error=error, tail=tail))
    assert failure.error == f'{error}: File "/work/train.py", line 4 in load_shard'
    assert failure.tail == (error, *stack)


class TestFrame:
    HEAD = ("Traceback (most recent call last):", '  File "/work/train.py", line 9, in <module>', "    main()")
    LIBRARY = (
        '  File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1784, in _call_impl',
        "    return forward_call(*args, **kwargs)",
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    )
    USER = ('  File "net.py", line 13, in forward', "    return self.layer(batch)", "           ~~~~~~~~~~^^^^^^^")
    ERROR = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"

    def frame_of(self, *lines: str, mark: str = "", error: str = ERROR) -> str:
        tail = tuple(mark + line for line in lines)
        return failure_of(rank(0, 1.0, exit_code=1, error=error, tail=tail)).frame

    def test_is_the_innermost_one_that_is_not_in_a_library(self) -> None:
        expected = "net.py, line 13, in forward: return self.layer(batch)"
        lines = (*self.HEAD, *self.LIBRARY, *self.USER, *self.LIBRARY * 6, self.ERROR)
        assert len(lines) > TAIL
        assert self.frame_of(*lines) == expected
        assert self.frame_of(*lines, mark="[rank0]: ") == expected
        assert self.frame_of(*lines[6:], "[W1] destroy_process_group() was not called") == expected

    def test_the_last_lines_do_not_begin_with_the_marker_of_a_line_that_is_missing(self) -> None:
        lines = (*self.LIBRARY, *self.HEAD * 6, self.ERROR)
        assert len(lines) == TAIL + 2
        assert failure_of(rank(0, 1.0, exit_code=1, tail=lines)).tail == lines[3:]

    def test_without_a_source_line_is_the_place(self) -> None:
        assert self.frame_of(self.HEAD[0], self.USER[0], *self.LIBRARY, self.ERROR) == "net.py, line 13, in forward"

    def test_of_a_syntax_error_is_the_place_in_the_file(self) -> None:
        lines = ('  File "net.py", line 3', "    def f(:", "          ^", "SyntaxError: invalid syntax")
        assert self.frame_of(*lines, error=lines[-1]) == "net.py, line 3: def f(:"

    def test_is_unknown_without_a_traceback_of_the_error(self) -> None:
        assert self.frame_of(*self.LIBRARY, self.ERROR) == ""
        assert self.frame_of(*self.HEAD, "ValueError: other", "epoch 2", self.ERROR) == ""
        assert self.frame_of(*self.HEAD) == ""

    def test_is_read_from_the_longer_of_two_tails_of_a_rank(self) -> None:
        lines = (*self.HEAD, *self.LIBRARY * 6, self.ERROR)
        log = rank(0, 1.0, exit_code=1, error=self.ERROR, tail=lines)
        message = rank(0, 1.0, exit_code=1, error=self.ERROR, tail=lines[-TAIL:])
        assert failure_of(log, message).frame == "/work/train.py, line 9, in <module>: main()"
