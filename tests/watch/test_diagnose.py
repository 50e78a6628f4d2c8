"""`diagnose` derives one Failure from observed ends: it names what failed first, and not what failed as a result."""

import signal

import pytest

from stepset.run_status import Failure, FailureKind
from stepset.watch.diagnose import ADVICE, Observation, diagnose, find_error, kind_of


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
    def test_names_the_node_but_not_a_loopback_address(self) -> None:
        assert failure_of(rank(0, 1.0, exit_code=1, node="gpu-7")).message == (
            "rank 0 (pod node-0 on gpu-7) exited with code 1."
        )
        assert failure_of(rank(0, 1.0, exit_code=1, node="127.70.1.101")).message == (
            "rank 0 (pod node-0) exited with code 1."
        )

    @pytest.mark.parametrize(
        ("code", "words", "kind"),
        [
            (139, "exited with code 139 (SIGSEGV).", FailureKind.USER_ERROR),
            (143, "exited with code 143 (SIGTERM), from outside the run.", FailureKind.INFRASTRUCTURE),
            (137, "exited with code 137 (SIGKILL), out of memory.", FailureKind.OUT_OF_MEMORY),
            (255, "exited with code 255.", FailureKind.USER_ERROR),
        ],
    )
    def test_names_the_signal_of_an_exit_code(self, code: int, words: str, kind: FailureKind) -> None:
        failure = failure_of(rank(0, 1.0, exit_code=code))
        assert (failure.kind, failure.message) == (kind, f"rank 0 (pod node-0) {words}")

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


def test_the_tail_has_only_the_last_lines() -> None:
    tail = failure_of(rank(0, 1.0, exit_code=1, tail=tuple(f"line {n}" for n in range(100)))).tail
    assert tail[-1] == "line 99" and len(tail) == 20


def test_restarts_and_events_are_part_of_the_failure() -> None:
    failure = diagnose([rank(0, 1.0, exit_code=1)], restarts=2, events=["Evicted: low on memory"])
    assert failure is not None and (failure.restarts, failure.events) == (2, ("Evicted: low on memory",))
