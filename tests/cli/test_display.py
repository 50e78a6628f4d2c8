"""What `stepset run` shows during a run: every line once, a temporary status line, a limited rate."""

from __future__ import annotations

import io
import os
import re
import threading
import time

import pytest

from stepset.cli.output import run_display as module
from stepset.cli.output.live_rows import live_rows
from stepset.cli.output.outcome import outcome
from stepset.cli.output.run_display import RunDisplay
from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RankStatus, RunStatus
from stepset.watch.lines import OpenLine
from stepset.watch.present.presenter import PROGRESS_EVERY
from tests.waiting import LIMIT, until

RUNNING = RunStatus("digits-1", "digits", "local", Phase.RUNNING, world_size=2, created=time.time())


def test_every_line_is_shown_once_in_order_with_its_source() -> None:
    out = io.BytesIO()
    with RunDisplay(out, io.BytesIO()) as display:
        for n in range(20_000):
            display.on_line(LogLine(f"rank {n % 2}", f"line {n}"))
    assert out.getvalue().decode().splitlines() == [f"[rank {n % 2}] line {n}" for n in range(20_000)]


def test_any_text_can_be_written() -> None:
    out = io.BytesIO()
    with RunDisplay(out, io.BytesIO()) as display:
        display.on_line(LogLine("launcher", "\ufffd \udc80 \U0001f600"))
    assert out.getvalue().decode() == "[launcher] \ufffd ? \U0001f600\n"


def test_the_note_about_omitted_lines_has_the_command_of_the_diagnosis() -> None:
    messages, flags = io.BytesIO(), " --backend kubernetes --namespace ml"
    now = time.time()
    failed = RunStatus("digits-1", "digits", "kubernetes", Phase.FAILED, created=now, started=now)
    with RunDisplay(io.BytesIO(), messages, flags=flags) as display:
        display.on_line(LogLine("rank 0", "Connection closed by peer", aftermath=True))
        display.on_status(failed)
    command = f"stepset logs digits-1{flags}"
    assert f"ranks; {command} shows every line\n" in messages.getvalue().decode()
    assert outcome(failed, flags=flags).endswith(command)


@pytest.mark.parametrize(("shown", "repeated"), [(("step 1", "ValueError: bad"), False), (("step 1",), True)])
def test_the_report_repeats_last_lines_only_if_the_terminal_has_not_shown_them_all(
    shown: tuple[str, ...], repeated: bool
) -> None:
    error = "ValueError: bad"
    failure = Failure(FailureKind.USER_ERROR, f"rank 1: {error}", "", rank=1, error=error, tail=("step 1", error))
    failed = RUNNING.with_(phase=Phase.FAILED, finished=time.time(), failure=failure)
    for terminals in (True, False):
        with RunDisplay(io.BytesIO(), io.BytesIO(), lines_terminal=True, messages_terminal=terminals) as display:
            for text in shown:
                display.on_line(LogLine("rank 1", text))
            display.on_line(LogLine("rank 0", error))
        report = outcome(display.without_shown_lines(failed))
        assert ("last lines" in report) == (repeated or not terminals)


def test_lines_are_coloured_by_rank_if_colour_is_enabled() -> None:
    out = io.BytesIO()
    with RunDisplay(out, io.BytesIO(), lines_terminal=True, colour=True) as display:
        display.on_line(LogLine("rank 0", "a\rb"))
        display.on_line(LogLine("rank 1", "c"))
    assert out.getvalue() == b"\x1b[36m[rank 0]\x1b[0m b\n\x1b[32m[rank 1]\x1b[0m c\n"


def test_the_status_line_is_below_the_lines_and_removed_at_the_end() -> None:
    terminal = io.BytesIO()
    with RunDisplay(terminal, terminal, lines_terminal=True, messages_terminal=True) as display:
        display.on_status(RUNNING)
        assert until(lambda: b"Running" in terminal.getvalue())
        display.on_line(LogLine("rank 0", "hello"))
        assert until(lambda: b"Running" in terminal.getvalue().partition(b"hello")[2])
    assert screen(terminal.getvalue()) == ["[rank 0] hello", ""]
    drawn = [piece for piece in terminal.getvalue().split(b"\r\x1b[K") if b"hello" in piece]
    assert drawn[0].startswith(b"[rank 0] hello\ndigits-1  Running")


def test_a_progress_bar_is_one_row_for_each_rank_that_is_drawn_in_place() -> None:
    terminal = io.BytesIO()
    with RunDisplay(terminal, terminal, lines_terminal=True, messages_terminal=True) as display:
        display.on_status(RUNNING)
        for percent in range(0, 100, 20):
            for rank in (10, 2):
                display.on_open_line(OpenLine(f"rank {rank}", f"{percent} %"))
            assert until(lambda: f"[rank 10] {percent} %\ndigits-1" in "\n".join(screen(terminal.getvalue())))  # noqa: B023
        display.on_line(LogLine("rank 2", "100 %"))
        assert until(lambda: screen(terminal.getvalue())[:2] == ["[rank 2] 100 %", "[rank 10] 80 %"])
    assert screen(terminal.getvalue()) == ["[rank 2] 100 %", ""]


def test_rows_of_progress_bars_take_at_most_half_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "30")
    terminal = io.BytesIO()
    with RunDisplay(terminal, terminal, lines_terminal=True, messages_terminal=True) as display:
        display.on_status(RUNNING)
        for rank in range(64):
            display.on_open_line(OpenLine(f"rank {rank}", "x" * 100 + "\n\x1b[A"))
        assert until(lambda: b"[rank 4]" in terminal.getvalue())
        rows = screen(terminal.getvalue())
    assert [row[:8] for row in rows] == ["[rank 0]", "[rank 1]", "[rank 2]", "[rank 3]", "[rank 4]", "digits-1"]
    assert max(map(len, rows)) == 29


def test_wide_characters_and_tabs_of_a_progress_bar_do_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    lines = {"rank 0": OpenLine("rank 0", "\u9032" * 30), "rank 1": OpenLine("rank 1", "\t" * 30)}
    wide, tabs, _ = live_rows(lines, "digits-1", colour=False).split("\n")
    assert wide == "[rank 0] " + "\u9032" * 10
    assert tabs == "[rank 1] " + " " * 20


def test_rows_of_progress_bars_disappear_when_a_new_attempt_begins() -> None:
    terminal = io.BytesIO()
    with RunDisplay(terminal, terminal, lines_terminal=True, messages_terminal=True) as display:
        display.on_status(RUNNING)
        display.on_open_line(OpenLine("rank 0", "50 %"))
        assert until(lambda: "50 %" in "".join(screen(terminal.getvalue())))
        display.on_status(RUNNING.with_(attempt=RUNNING.attempt + 1))
        assert until(lambda: "50 %" not in "".join(screen(terminal.getvalue())))


def test_a_log_contains_no_states_of_a_short_progress_bar() -> None:
    out = io.BytesIO()
    with RunDisplay(out, out, lines_terminal=False, messages_terminal=True) as display:
        display.on_open_line(OpenLine("rank 0", "50 %"))
        display.on_line(LogLine("rank 0", "100 %"))
    assert screen(out.getvalue())[0] == "[rank 0] 100 %"
    assert b"50 %" not in out.getvalue()


def test_no_status_line_is_shown_once_all_ranks_have_ended() -> None:
    terminal = io.BytesIO()
    ended = tuple(RankStatus(f"rank {n}", n, "node-0", state=state) for n, state in enumerate(("Failed", "Stopped")))
    with RunDisplay(terminal, terminal, messages_terminal=True) as display:
        display.on_status(RUNNING)
        assert until(lambda: b"ranks running" in terminal.getvalue())
        display.on_status(RUNNING.with_(ranks=ended))
        assert until(lambda: terminal.getvalue().endswith(b"\r\x1b[K"))
        time.sleep(1.2)
        assert terminal.getvalue().endswith(b"\r\x1b[K")
    assert terminal.getvalue().count(b"ranks running") == 1


def test_lines_after_the_first_failure_are_shown_if_verbose() -> None:
    out = io.BytesIO()
    with RunDisplay(out, io.BytesIO(), verbose=True) as display:
        display.on_line(LogLine("node 0", "ChildFailedError", aftermath=True))
    assert out.getvalue() == b"[node 0] ChildFailedError\n"


def screen(data: bytes) -> list[str]:
    """Returns what a terminal finally shows, for the control sequences of the display."""
    rows, row, column = [""], 0, 0
    for piece in re.findall("\r|\n|\x1b\\[\\d*[AJK]|[^\r\n\x1b]+", data.decode()):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row, column = row + 1, 0
            rows += [""] * (row == len(rows))
        elif piece.startswith("\x1b"):
            row -= int(piece[2:-1]) if piece.endswith("A") else 0
            if not piece.endswith("A"):
                rows[row] = rows[row][:column]
            if piece.endswith("J"):
                del rows[row + 1 :]
        else:
            rows[row] = rows[row][:column] + piece + rows[row][column + len(piece) :]
            column += len(piece)
    return rows


def test_the_status_line_is_cut_to_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = io.BytesIO()
    with RunDisplay(terminal, terminal, messages_terminal=True) as display:
        display.on_status(RUNNING)
        assert until(lambda: b"Running" in terminal.getvalue())
    assert terminal.getvalue().split(b"\r")[0] == b"digits-1  Running, "


def test_a_terminal_is_redrawn_at_most_ten_times_a_second() -> None:
    terminal = io.BytesIO()
    start = time.monotonic()
    with RunDisplay(terminal, terminal, messages_terminal=True) as display:
        for step in range(1000):
            display.on_status(RUNNING.with_(progress=Progress(step)))
            time.sleep(0.001)
    drawn = terminal.getvalue().count(b"Running")
    assert 1 <= drawn <= (time.monotonic() - start) * module.TICKS_PER_SECOND + 1


def test_without_a_terminal_progress_is_a_plain_line_at_most_once_a_second() -> None:
    messages = io.BytesIO()
    start = time.monotonic()
    with RunDisplay(io.BytesIO(), messages) as display:
        for step in range(150):
            display.on_status(RUNNING.with_(progress=Progress(step, step / 150)))
            time.sleep(0.01)
        assert until(lambda: messages.getvalue().endswith(b"99 %, step 149\n"))
    first, *lines = messages.getvalue().decode().splitlines()
    assert first == "stepset: run digits-1: Running, 2 ranks"
    assert all(line.startswith("stepset: progress: ") for line in lines)
    assert 2 <= len(lines) <= (time.monotonic() - start) / PROGRESS_EVERY + 1
    assert "\x1b" not in messages.getvalue().decode()


def test_an_unchanged_status_is_not_shown_again() -> None:
    messages = io.BytesIO()
    with RunDisplay(io.BytesIO(), messages) as display:
        display.on_status(RUNNING)
        assert until(lambda: b"Running" in messages.getvalue())
        display.on_status(RUNNING)
        time.sleep(1.2)
    assert messages.getvalue().decode() == "stepset: run digits-1: Running, 2 ranks\n"


def test_the_writing_thread_does_not_show_an_earlier_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICKS_PER_SECOND", 1_000_000)
    messages = io.BytesIO()
    with RunDisplay(io.BytesIO(), messages) as display:
        for attempt in range(3000):
            display.on_status(RUNNING.with_(attempt=attempt))
    shown = [line.rpartition(" ")[2] for line in messages.getvalue().decode().splitlines()[1:]]
    assert shown == [str(attempt) for attempt in range(1, 3000)]


def test_each_note_is_shown_once() -> None:
    messages = io.BytesIO()
    with RunDisplay(io.BytesIO(), messages) as display:
        display.on_status(RUNNING.with_(notes=("few cores",)))
        display.on_status(RUNNING.with_(notes=("few cores", "restart 1: rank 0 failed.")))
    notes = [line for line in messages.getvalue().decode().splitlines() if "note" in line]
    assert notes == ["stepset: note: few cores", "stepset: note: restart 1: rank 0 failed."]


def test_trouble_is_shown_again_only_if_its_cause_changes() -> None:
    def lost(node: str, seconds: int) -> RunStatus:
        text = f"node {node} is lost: its pod should have ended {seconds} s ago."
        return RUNNING.with_(trouble=Failure(FailureKind.INFRASTRUCTURE, text, "Wait.", node=node))

    messages = io.BytesIO()
    with RunDisplay(io.BytesIO(), messages) as display:
        for status in (lost("node-1", 1), lost("node-1", 2), RUNNING, lost("node-1", 3), lost("node-2", 4)):
            display.on_status(status)
    shown = [line for line in messages.getvalue().decode().splitlines() if "trouble" in line]
    assert shown == [
        "stepset: trouble: Infrastructure: node node-1 is lost: its pod should have ended 1 s ago. Wait.",
        "stepset: trouble: Infrastructure: node node-2 is lost: its pod should have ended 4 s ago. Wait.",
    ]


def test_a_closed_pipe_is_reported_once_and_does_not_affect_the_run() -> None:
    read, write = os.pipe()
    os.close(read)
    reported: list[int] = []
    with (
        os.fdopen(write, "wb", buffering=0) as closed,
        RunDisplay(closed, io.BytesIO(), on_write_error=lambda: reported.append(1)) as display,
    ):
        for n in range(100):
            display.on_line(LogLine("rank 0", f"{n}" * 10_000))
        assert until(lambda: bool(reported))
    assert reported == [1]
    assert isinstance(display.error, BrokenPipeError)


def test_a_slow_reader_slows_the_run_down_and_loses_no_lines() -> None:
    read, write = os.pipe()
    lines = 300
    with os.fdopen(write, "wb", buffering=0) as slow, os.fdopen(read, "rb") as reader:
        done = threading.Event()

        def produce() -> None:
            with RunDisplay(slow, io.BytesIO()) as display:
                for n in range(lines):
                    display.on_line(LogLine("rank 0", f"{n:06}" + "x" * 20_000))
            slow.close()
            done.set()

        producer = threading.Thread(target=produce)
        producer.start()
        assert not done.wait(0.5), "without a reader, it must wait"
        seen = [line[:15].decode() for line in reader]
        producer.join()
    assert seen == [f"[rank 0] {n:06}" for n in range(lines)]


def test_a_reader_that_reads_nothing_cannot_delay_the_end_of_a_stopped_run() -> None:
    read, write = os.pipe()
    messages = io.BytesIO()
    with os.fdopen(write, "wb", buffering=0) as stuck, os.fdopen(read, "rb") as reader:
        display = RunDisplay(stuck, messages)
        written = threading.Event()

        def produce() -> None:
            for n in range(300):
                display.on_line(LogLine("rank 0", f"{n:06}" + "x" * 20_000))
            written.set()

        with display:
            producer = threading.Thread(target=produce)
            producer.start()
            assert not written.wait(0.5)
            display.drop_lines_when_full()
            assert written.wait(LIMIT)
            producer.join()
            drain = threading.Thread(target=reader.read)  # the user closes the pager
            drain.start()
        stuck.close()
        drain.join()
    assert b"lines are not shown; see 'stepset logs'\n" in messages.getvalue()
