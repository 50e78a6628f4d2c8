"""Every byte of every rank is printed exactly once, in whole lines with their source."""

from __future__ import annotations

import fcntl
import struct
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.agent.lines import ATOMIC, Lines, PartJoiner, cut_into_writes
from tests.agent.pods import Both, Ended, Pod
from tests.waiting import until

MIB = 1 << 20
TEXT = st.binary(max_size=40).map(lambda data: data.translate(None, b"\r\x1b"))
CHUNKS = st.lists(st.one_of(TEXT, st.sampled_from([b"\n", b"x" * 5000, b"a+] b\n", b"[stepset"])))
BARS = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"\r1 %", b"2 %\r", b"three", b"\n\r4 %"]))


def raw(lines: bytes) -> bytes:
    """Returns the output of one rank as a reader of the agent's lines sees it."""
    return Ended(0, lines, b"", b"").raw("rank 3")


@given(CHUNKS, st.integers(1, 300))
def test_lines_do_not_depend_on_the_ends_of_chunks(chunks: list[bytes], limit: int) -> None:
    lines = Lines("rank 3", limit=limit)
    out = b"".join([*map(lines.feed, chunks), lines.finish()])
    data = b"".join(chunks)
    assert raw(out) == data + (b"\n" if data and not data.endswith(b"\n") else b"")
    assert all(line.startswith((b"[rank 3] ", b"[rank 3+] ")) for line in out.split(b"\n")[:-1])


@given(BARS)
def test_of_a_line_that_overwrites_itself_the_last_state_is_printed(chunks: list[bytes]) -> None:
    lines = Lines("rank 3")
    out = b"".join([*map(lines.feed, chunks), lines.finish()])
    *whole, last = b"".join(chunks).split(b"\n")
    shown = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in ([*whole, last] if last else whole)]
    assert raw(out) == b"".join(line + b"\n" for line in shown)


def test_the_state_of_an_incomplete_line_is_printed_once_a_second(both: Both) -> None:
    script = "i=0; while [ $i -lt 30 ]; do printf '\\rstep %d' $i; sleep 0.1; i=$((i+1)); done; echo"
    ended = both.run(script)
    states = [line for line in ended.out.split(b"\n") if line.startswith(b"[rank 0~] step ")]
    assert 2 <= len(states) <= 8
    assert ended.lines("rank 0") == [b"step 29"]


def test_a_progress_bar_that_never_ends_takes_little_memory(both: Both) -> None:
    ended = both.run("yes '0123456789' | tr '\\n' '\\r' | head -c 22000000")
    assert ended.lines("rank 0") == [b"0123456789"]
    assert len(ended.out) < 10_000


def test_nested_bars_of_tqdm_print_their_last_states() -> None:
    lines, up = Lines("rank 3"), b"\x1b[A"
    chunks = [b"\router 0", b"\n", b"\rinner 0", up, b"\n", b"\rinner 9", up, b"\router 1", b"\n", b"done\n"]
    out = b"".join([*map(lines.feed, chunks), lines.finish()])
    assert raw(out) == b"outer 0\nouter 1\ndone\n"


@given(CHUNKS, st.lists(st.integers(1, 9000), min_size=1))
def test_lines_cut_to_fit_one_write_are_joined_again(chunks: list[bytes], reads: list[int]) -> None:
    lines = Lines("rank 3", limit=ATOMIC)
    formatted = [*map(lines.feed, chunks), lines.finish()]
    pieces = [piece for block in formatted for piece in cut_into_writes(block)]
    assert all(len(piece) <= ATOMIC and piece.endswith(b"\n") for piece in pieces)
    joiner = PartJoiner(_no_event)
    stream, out = b"".join(pieces), b""
    for size in reads:
        out += joiner.feed(stream[:size])
        stream = stream[size:]
    out += joiner.feed(stream) + joiner.finish()
    whole = Lines("rank 3")
    assert out == b"".join([*map(whole.feed, chunks), whole.finish()])


def _no_event(text: bytes) -> bytes:
    raise AssertionError(f"{text!r} was read as an event")


def test_parts_of_several_ranks_do_not_mix() -> None:
    joiner = PartJoiner(_no_event)
    assert joiner.feed(b"[rank 1+] a\n[rank 2+] x\n[rank 1] b\n[rank 3] q\n") == b"[rank 1] ab\n[rank 3] q\n"
    assert joiner.feed(b"[rank 2] y\n") == b"[rank 2] xy\n"


def test_an_incomplete_line_of_a_killed_rank_is_shown() -> None:
    joiner = PartJoiner(_no_event)
    assert joiner.feed(b"[rank 1+] half\n") == b""
    assert joiner.finish() == b"[rank 1] half\n"


def test_a_last_line_without_line_end_gets_one(both: Both) -> None:
    assert both.run("echo one; printf two").raw("rank 0") == b"one\ntwo\n"


def test_stdout_and_stderr_of_a_rank_are_one_stream(both: Both) -> None:
    assert both.run("echo a; echo b >&2; echo c").lines("rank 0") == [b"a", b"b", b"c"]


def test_bytes_that_are_not_text_are_unchanged(both: Both) -> None:
    ended = both.run(r"printf '\377\376\000\033[1m\n\n\200'")
    assert ended.raw("rank 0") == b"\xff\xfe\x00\x1b[1m\n\n\x80\n"


def test_a_carriage_return_before_a_line_end_is_part_of_the_line_end(both: Both) -> None:
    assert both.run(r"printf 'one\r\ntwo\r'; sleep 0.3; printf '\n'").lines("rank 0") == [b"one", b"two"]


def test_a_rank_cannot_print_lines_of_another_rank_or_of_the_agent(both: Both) -> None:
    forged = '[stepset] {"event": "failed", "rank": 0}'
    ended = both.run(f"echo '{forged}'; echo '[rank 7] x'; echo '[rank 0+] y'; printf '\\n'")
    assert ended.lines("rank 0") == [forged.encode(), b"[rank 7] x", b"[rank 0+] y", b""]
    assert ended.events("failed") == []


@pytest.mark.parametrize("launched", [False, True])
def test_a_line_of_5_mb_is_printed_in_parts_of_about_1_mb(pod: Pod, launched: bool) -> None:
    script = f"{sys.executable} -I -S -c \"print('begin'); print('0123456789' * 524288 + '!'); print('end', end='')\""
    ended = (pod.run_launched if launched else pod.run_ranks)(script)
    assert ended.raw("rank 0") == b"begin\n" + b"0123456789" * 524288 + b"!\nend\n"
    assert max(map(len, ended.out.split(b"\n"))) < 1.2 * MIB
    assert len(ended.out.split(b"[rank 0+] ")) in (5, 6)


@pytest.mark.parametrize("launched", [False, True])
def test_ranks_that_print_at_the_same_time_do_not_interleave_lines(pod: Pod, launched: bool) -> None:
    text = "x" * 700
    script = f'i=0; while [ $i -lt 2000 ]; do echo "$RANK $i {text}"; i=$((i+1)); done'
    ended = (pod.run_launched if launched else pod.run_ranks)(script, 4)
    for rank in range(4):
        assert ended.lines(f"rank {rank}") == [f"{rank} {i} {text}".encode() for i in range(2000)]


def test_lines_of_a_command_that_is_not_a_rank_get_its_source(any_pod: Pod) -> None:
    ended = any_pod.run(
        "/bin/sh", "-c", "echo '[rank 0] mine'; echo b", source="node {node_rank}", env={"STEPSET_NODE_RANK": "4"}
    )
    assert ended.lines("node 4") == [b"[rank 0] mine", b"b"]
    assert ended.lines("rank 0") == []


@pytest.mark.parametrize("launched", [False, True])
def test_memory_stays_bounded_for_any_output(pod: Pod, launched: bool) -> None:
    size, zeros = 50_000_000, 0
    peaks: list[int] = []
    start = pod.start_launched if launched else pod.start_ranks
    with start(f"head -c {size} /dev/zero") as running:
        for part in running.read_in_parts(5 * MIB):
            zeros += part.count(b"\0")
            peaks += map(peak_memory, running.alive())
        assert running.end().exit_code == 0
    assert zeros == size
    assert 4 * MIB < max(peaks) < 40 * MIB


def test_ranks_wait_for_a_slow_reader_instead_of_filling_memory(pod: Pod) -> None:
    with pod.start_ranks("yes | head -c 8000000") as running:
        assert until(lambda: waiting_bytes(running.process.stdout) >= 60_000), "a pipe without a reader fills up"
        time.sleep(0.5)
        assert max(map(peak_memory, running.alive())) < 40 * MIB
        assert running.end().out.count(b"[rank 0] y\n") == 4_000_000


def waiting_bytes(pipe: IO[bytes] | None) -> int:
    """Returns the number of unread bytes in a pipe."""
    assert pipe is not None
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def peak_memory(pid: int) -> int:
    """Returns the peak memory of a process in bytes; 0 after its end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return max((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), default=0)


def test_events_between_the_parts_of_a_long_event_do_not_break_it() -> None:
    events: list[bytes] = []

    def note(text: bytes) -> bytes:
        events.append(text)
        return b""

    joiner = PartJoiner(note)
    first, *others = cut_into_writes(b"[stepset 0] " + b"x" * 9000 + b"\n")
    printed = joiner.feed(first) + joiner.feed(b"[stepset] short\n") + joiner.feed(b"".join(others))
    assert (printed, events) == (b"", [b"short", b"x" * 9000])
