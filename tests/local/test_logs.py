"""Logs: readers receive every line once, while the log is written and afterwards."""

import io
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.local.logs import files as logs
from stepset.backends.local.logs.files import Recorder, copy_lines
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.runs.store import RunStore
from stepset.run_status import LogLine, Phase, RunStatus
from stepset.spec import TrainingJob
from stepset.watch.lines import Splitter

STATUS = RunStatus(name="digits-1", job="digits", backend="local", phase=Phase.RUNNING)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunStore(tmp_path).create(STATUS, TrainingJob(command=["true"]))[0]


def record(run: RunDir, *chunks: bytes) -> Recorder:
    recorder, splitter = Recorder(run), Splitter("node 0")
    for chunk in chunks:
        recorder.write(splitter.feed(chunk))
    recorder.write(splitter.finish())
    return recorder


def finish(run: RunDir) -> None:
    run.write(STATUS.with_(phase=Phase.SUCCEEDED))


def read_lines(run: RunDir, **how: Any) -> Iterator[LogLine]:
    return chain.from_iterable(logs.read_lines(run, **how))


def copied(run: RunDir, **how: frozenset[str]) -> bytes:
    out = io.BytesIO()
    copy_lines(run, out, **how)  # type: ignore[arg-type]
    return out.getvalue()


BYTES = (
    b"[rank 0] one\n[rank 1+] a long\n[rank 0] \xff\xfe\n"
    b'[rank 0] {"stepset": {"step": 1}}\n[rank 1]  line\n[node 0] by itself\n[rank 10] +] not a part\n'
)


class TestReading:
    def test_returns_every_line_with_its_source_and_no_progress(self, run: RunDir) -> None:
        record(run, BYTES)
        assert list(read_lines(run)) == [
            LogLine("rank 0", "one"),
            LogLine("rank 0", "\ufffd\ufffd"),
            LogLine("rank 1", "a long line"),
            LogLine("node 0", "by itself"),
            LogLine("rank 10", "+] not a part"),
        ]

    def test_returns_only_the_requested_sources(self, run: RunDir) -> None:
        record(run, BYTES)
        assert list(read_lines(run, sources=frozenset({"rank 1"}))) == [LogLine("rank 1", "a long line")]
        assert list(read_lines(run, sources=frozenset())) == []

    def test_as_bytes_leaves_them_unchanged(self, run: RunDir) -> None:
        record(run, BYTES)
        assert copied(run) == (
            b"[rank 0] one\n[rank 0] \xff\xfe\n[rank 1] a long line\n[node 0] by itself\n[rank 10] +] not a part\n"
        )
        assert copied(run, sources=frozenset({"rank 0"})) == b"[rank 0] one\n[rank 0] \xff\xfe\n"

    def test_a_ranks_file_has_its_output_byte_for_byte(self, run: RunDir) -> None:
        record(run, BYTES)
        assert run.rank_log("rank 0").read_bytes() == b'one\n\xff\xfe\n{"stepset": {"step": 1}}\n'
        assert run.rank_log("rank 1").read_bytes() == b"a long line\n"
        assert run.rank_log("node 0").read_bytes() == b"by itself\n"

    def test_a_line_of_five_megabytes_is_one_line(self, run: RunDir) -> None:
        text = bytes(range(32, 127)) * (5 * 1024 * 1024 // 95)
        parts = [text[at : at + 1_000_000] for at in range(0, len(text), 1_000_000)]
        stream = b"".join(b"[rank 0+] %s\n[rank 1] tick\n" % part for part in parts) + b"[rank 0] \n"
        record(run, *(stream[at : at + 65_536] for at in range(0, len(stream), 65_536)))
        lines = [line.text for line in read_lines(run) if line.source == "rank 0"]
        assert lines == [text.decode()]
        assert run.rank_log("rank 0").read_bytes() == text + b"\n"
        assert copied(run, sources=frozenset({"rank 0"})) == b"[rank 0] " + text + b"\n"

    def test_an_incomplete_line_is_returned_after_the_end_of_the_run(self, run: RunDir) -> None:
        run.log.write_bytes(b"[rank 0] whole\n[rank 0] ha")
        assert [line.text for line in read_lines(run)] == ["whole"]
        finish(run)
        assert [line.text for line in read_lines(run)] == ["whole", "ha"]


class TestFollowing:
    def test_returns_lines_as_they_are_printed_until_the_run_is_over(self, run: RunDir) -> None:
        recorder, splitter = Recorder(run), Splitter("node 0")
        lines: Iterator[LogLine] = read_lines(run, follow=True, poll=0.01)
        recorder.write(splitter.feed(b"[rank 0] 1\n"))
        assert next(lines) == LogLine("rank 0", "1")
        recorder.write(splitter.feed(b"[rank 0] 2\n[rank 1] 3\n"))
        assert [next(lines).text, next(lines).text] == ["2", "3"]
        recorder.write(splitter.feed(b"[rank 0] last\n"))
        finish(run)
        assert list(lines) == [LogLine("rank 0", "last")]

    def test_loses_and_repeats_no_line_while_the_log_is_written(self, run: RunDir) -> None:
        def write() -> None:
            recorder, splitter = Recorder(run), Splitter("node 0")
            for start in range(0, 20_000, 50):
                block = b"".join(b"[rank %d] line %d\n" % (n % 3, n) for n in range(start, start + 50))
                for at in range(0, len(block), 333):
                    recorder.write(splitter.feed(block[at : at + 333]))
            recorder.close()
            finish(run)

        writer = threading.Thread(target=write)
        writer.start()
        texts = [line.text for line in read_lines(run, follow=True, poll=0.005)]
        writer.join()
        assert texts == [f"line {n}" for n in range(20_000)]

    def test_ends_when_the_run_is_lost(self, tmp_path: Path) -> None:
        import os

        run, lock = RunStore(tmp_path).create(STATUS, TrainingJob(command=["true"]))
        record(run, b"[rank 0] so far\n")
        os.close(lock)
        assert list(read_lines(run, follow=True, poll=0.01)) == [LogLine("rank 0", "so far")]


def test_the_logs_of_more_ranks_than_open_files_are_complete(run: RunDir) -> None:
    stream = b"".join(b"[rank %d] line %d\n" % (n, turn) for turn in range(2) for n in range(300))
    record(run, stream[: len(stream) // 2], stream[len(stream) // 2 :]).close()
    assert run.rank_log("rank 299").read_bytes() == b"line 0\nline 1\n"
    assert len(list((run.path / "ranks").iterdir())) == 300
