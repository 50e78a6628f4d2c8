"""Reading and writing never block, and a slow reader slows the sources down."""

from __future__ import annotations

import os
import signal

import pytest

from stepset.agent.lines import ATOMIC
from stepset.agent.loop import Loop, Out, Streams, read_all, read_pipe

MIB = 1 << 20


def test_ready_file_descriptors_are_called_until_removed(loop: Loop) -> None:
    inner, outer = read_pipe(0)
    called: list[bytes] = []
    loop.watch(inner, lambda: called.append(os.read(inner, 9)))
    loop.turn(0)
    os.write(outer, b"a")
    loop.turn(1)
    loop.forget(inner)
    loop.forget(inner)
    os.write(outer, b"b")
    loop.turn(0)
    assert called == [b"a"]


def test_signals_are_returned_once(loop: Loop) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert loop.turn(10) == [signal.SIGUSR1]
    assert loop.turn(0) == []


def test_a_full_pipe_keeps_the_rest_for_later() -> None:
    inner, outer = read_pipe(0)
    out = Out(outer)
    out.put(b"x" * MIB + b"\n")
    out.flush()
    written = b"".join(read_all(inner)[0])
    assert 0 < len(written) < MIB
    assert out.pending == MIB + 1 - len(written)
    while out.pending:
        out.flush()
        written += b"".join(read_all(inner)[0])
    assert written == b"x" * MIB + b"\n"
    assert os.get_blocking(outer), "other processes that have this pipe may rely on it"


def test_a_closed_reader_breaks_the_writer() -> None:
    inner, outer = read_pipe(0)
    out = Out(outer)
    os.close(inner)
    out.put(b"a\n")
    out.flush()
    out.put(b"b\n")
    assert (out.broken, out.pending) == (True, 0)


def test_pieces_fit_one_write() -> None:
    inner, outer = read_pipe(1 << 16)
    out = Out(outer, atomic=True)
    out.put(b"[rank 0] " + b"x" * ATOMIC + b"\n")
    out.flush()
    assert os.read(inner, MIB).count(b"\n") == 2


def test_a_spaced_piece_waits_until_the_previous_piece_is_read() -> None:
    inner, outer = read_pipe(0)
    out = Out(outer, spaced=True)
    out.put(b"a\n")
    out.put(b"b\n")
    out.flush()
    assert (out.waits_for_reader, out.unread) == (True, True)
    assert os.read(inner, 9) == b"a\n"
    out.flush()
    assert (out.waits_for_reader, os.read(inner, 9), out.unread) == (False, b"b\n", False)


def test_the_end_of_a_pipe_is_reported() -> None:
    inner, outer = read_pipe(0)
    os.write(outer, b"a")
    assert read_all(inner) == ([b"a"], False)
    os.close(outer)
    assert read_all(inner) == ([], True)


@pytest.mark.parametrize("added", ["before", "while"])
def test_sources_are_not_read_while_too_much_is_unwritten(loop: Loop, added: str) -> None:
    reader, outer = read_pipe(0)
    streams = Streams(Out(outer), loop)
    source, writer = read_pipe(0)
    seen: list[bytes] = []

    def read() -> None:
        seen.append(os.read(source, 9))

    if added == "before":
        streams.add(source, read)
    streams.out.put(b"x" * 2 * MIB)
    streams.turn(0)
    if added == "while":
        streams.add(source, read)
    os.write(writer, b"a")
    streams.turn(0)
    assert seen == []
    while streams.out.pending:
        streams.turn(0)
        read_all(reader)
    streams.turn(0)
    streams.turn(0)
    assert seen == [b"a"]
    streams.remove(source)
    os.write(writer, b"b")
    streams.turn(0)
    assert seen == [b"a"]
