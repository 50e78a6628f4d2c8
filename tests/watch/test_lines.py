"""The agent's line protocol: every byte is delivered once, with its source."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.run_status import LogLine, Progress
from stepset.watch.lines import (
    LINE_LIMIT,
    PART_LIMIT,
    Batch,
    Joiner,
    Splitter,
    line_of,
    log_lines,
)
from stepset.watch.reported import Report, merge_report, parse_report


def split(*chunks: bytes) -> Batch:
    """The content of all chunks as one batch."""
    splitter, whole = Splitter("node 0"), Batch()
    for batch in [*(splitter.feed(chunk) for chunk in chunks), splitter.finish()]:
        whole.lines += batch.lines
        whole.shown += batch.shown
        whole.progress += batch.progress
        whole.unread_report |= batch.unread_report
        whole.events += batch.events
        for source, pieces in batch.raw.items():
            whole.raw.setdefault(source, []).extend(pieces)
    return whole


def shown(*chunks: bytes) -> list[LogLine]:
    return list(log_lines(Joiner().join(split(*chunks).lines)))


class TestLine:
    def test_belongs_to_the_source_in_brackets(self) -> None:
        assert shown(b"[rank 3] hello\n[node 1] x\n[launcher] y\n[prepare-0] z\n") == [
            LogLine("rank 3", "hello"),
            LogLine("node 1", "x"),
            LogLine("launcher", "y"),
            LogLine("prepare-0", "z"),
        ]

    def test_has_the_number_of_its_rank(self) -> None:
        lines = shown(b"[rank 13] hello\n[node 1] x\n[launcher] y\n[prepare-0] z\n")
        assert [line.rank for line in lines] == [13, None, None, None]

    def test_may_be_empty(self) -> None:
        assert shown(b"[rank 0] \n[rank 0] x\n") == [LogLine("rank 0", ""), LogLine("rank 0", "x")]

    def test_may_contain_text_that_resembles_a_head(self) -> None:
        assert shown(b"[rank 0] [rank 1] text] more\n") == [LogLine("rank 0", "[rank 1] text] more")]

    def test_may_contain_bytes_that_are_not_utf8(self) -> None:
        batch = split(b"[rank 0] a\xff\xfeb\x00\r\n")
        assert b"".join(batch.raw["rank 0"]) == b"a\xff\xfeb\x00\r\n"
        assert list(log_lines(Joiner().join(batch.lines))) == [LogLine("rank 0", "a\ufffd\ufffdb\0\r")]

    @pytest.mark.parametrize("line", [b"Traceback (most recent call last):", b"[Errno 2] No such file", b"", b"] x"])
    def test_without_a_head_has_the_source_of_the_pod(self, line: bytes) -> None:
        batch = split(line + b"\n")
        assert list(log_lines(Joiner().join(batch.lines))) == [LogLine("node 0", line.decode())]
        assert batch.shown == b"[node 0] " + line + b"\n"

    def test_without_a_line_end_gets_one_at_the_end_of_the_output(self) -> None:
        assert shown(b"[rank 0] cut o") == [LogLine("rank 0", "cut o")]


class TestLineInParts:
    def test_is_joined_across_lines_of_other_sources(self) -> None:
        assert shown(b"[rank 0+] one \n[rank 1] between\n[rank 0+] two \n[rank 0] three\n") == [
            LogLine("rank 1", "between"),
            LogLine("rank 0", "one two three"),
        ]

    def test_has_no_line_ends_between_its_parts_in_the_raw_output(self) -> None:
        assert b"".join(split(b"[rank 0+] one \n[rank 0] two\n").raw["rank 0"]) == b"one two\n"

    def test_without_a_last_part_ends_with_the_output(self) -> None:
        batch = split(b"[rank 0+] half")
        assert b"".join(batch.raw["rank 0"]) == b"half\n"
        assert list(log_lines(Joiner().join(batch.lines))) == [LogLine("rank 0", "half")]

    def test_without_an_end_is_split_to_bound_the_memory(self) -> None:
        joiner, part = Joiner(), b"[rank 0+] " + b"x" * 1024 * 1024 + b"\n"
        splitter = Splitter("node 0")
        sizes = [len(text) for _ in range(130) for _, text in joiner.join(splitter.feed(part).lines)]
        assert sizes and max(sizes) <= LINE_LIMIT + 1024 * 1024

    def test_longer_than_the_protocol_allows_is_delivered(self) -> None:
        splitter = Splitter("node 0")
        assert splitter.feed(b"y" * (PART_LIMIT + 1)).lines


class TestProgress:
    LINE = b'{"stepset": {"step": 120, "progress": 0.4, "metrics": {"loss": 0.31}}}'

    def test_is_the_content_of_a_line_with_the_single_key_stepset(self) -> None:
        batch = split(b"[rank 0] " + self.LINE + b"\n")
        assert batch.progress == [Report(Progress(120, 0.4, {"loss": 0.31}), source="rank 0")]

    def test_is_in_the_raw_output_but_not_in_the_lines(self) -> None:
        batch = split(b"[rank 0] a\n[rank 0] " + self.LINE + b"\n[rank 0] b\n")
        assert batch.shown == b"[rank 0] a\n[rank 0] b\n"
        assert [text for _, text in batch.lines] == [b"a", b"b"]
        assert b"".join(batch.raw["rank 0"]) == b"a\n" + self.LINE + b"\nb\n"

    @pytest.mark.parametrize(
        "line",
        [
            b'{"stepset": {}, "other": 1}',
            b'{"stepset": 3}',
            b'{"stepset": {"step": 1}} and more',
            b'loss {"stepset": {"step": 1}}',
            b'["stepset"]',
            b'{"stepset": {"step": \xff}}',
        ],
    )
    def test_is_not_read_from_other_lines(self, line: bytes) -> None:
        batch = split(b"[rank 0] " + line + b"\n")
        assert not batch.progress
        assert batch.shown == b"[rank 0] " + line + b"\n"

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (str({"stepset": {"step": 1, "metrics": {"loss": 0.5}}}), True),
            (str({"stepset": {"metrics": {"loss": float("nan")}}}), True),
            ('rank 0: {"stepset": {"progress": 0.5}}', True),
            ('{"stepset": {"step": 1}, "time": 3}', True),
            (json.dumps({"stepset": {"step": 1}}, indent=1), True),
            (json.dumps({"stepset": {"step": 1}}, indent=4), True),
            ('{"stepset": {"step": 1}}', False),
            ('{"stepset": "1.0"}', False),
            ('    print(json.dumps({"stepset": {"step": 1}}))', False),
            ('    report = {"stepset": {"step": step, "metrics": {"loss": loss}}}', False),
            ('        "stepset": {', False),
            ("installed stepset: {'step': 1}", False),
        ],
    )
    def test_a_line_that_resembles_a_report_is_detected(self, line: str, expected: bool) -> None:
        printed = "".join(f"[rank 0] {each}\n" for each in line.split("\n"))
        assert split(printed.encode()).unread_report is expected

    @pytest.mark.parametrize(
        ("report", "expected"),
        [
            ({"progress": 7}, Progress(progress=1.0)),
            ({"progress": -1}, Progress(progress=0.0)),
            ({"step": "three", "progress": True}, Progress()),
            ({"metrics": {"loss": float("nan"), "acc": 1, "name": "x", "ok": True}}, Progress(metrics={"acc": 1})),
            ({"metrics": [1, 2]}, Progress()),
            ({"epoch": 3}, Progress()),
        ],
    )
    def test_ignores_invalid_values(self, report: object, expected: Progress) -> None:
        found = parse_report(json.dumps({"stepset": report}).encode())
        assert found is not None and found.progress == expected

    def test_updates_the_earlier_progress(self) -> None:
        old = Progress(10, 0.1, {"loss": 2.0, "lr": 0.1})
        assert merge_report(old, Report(Progress(step=20, metrics={"loss": 1.0}))) == Progress(
            20, 0.1, {"loss": 1.0, "lr": 0.1}
        )
        assert merge_report(None, Report(old)) == old

    def test_a_value_that_is_not_finite_removes_the_earlier_value(self) -> None:
        report = parse_report(b'{"stepset": {"step": 4, "metrics": {"loss": NaN, "lr": 0.2}}}')
        assert report is not None
        assert merge_report(Progress(3, 0.1, {"loss": 0.25, "lr": 0.1}), report) == Progress(4, 0.1, {"lr": 0.2})

    @pytest.mark.parametrize(
        ("report", "problem"),
        [
            (
                {"step": 1, "loss": 0.3},
                "unknown field loss in a progress report; the fields are step, progress, metrics. If loss is a number"
                ' of the training, put it into metrics: {"stepset": {"metrics": {"loss": 0.5}}}',
            ),
            (
                {"metrics": {"loss": "0.3"}},
                'the metric loss is "0.3" in a progress report; the value must be a number',
            ),
            ({"step": 1.5}, "step is 1.5 in a progress report; the value must be an integer below 2^63"),
            (
                {"metrics": [1]},
                "metrics is [1] in a progress report; the value must be a mapping from names to numbers",
            ),
            ({"step": None, "metrics": {"loss": float("nan"), "accuracy": None}}, ""),
        ],
    )
    def test_names_the_first_field_that_cannot_be_used(self, report: object, problem: str) -> None:
        found = parse_report(json.dumps({"stepset": report}).encode())
        assert found is not None and found.problem == problem


class TestEvents:
    def test_are_separate_from_the_lines(self) -> None:
        batch = split(b'[rank 0] a\n[stepset] {"event": "exited", "rank": 0, "exit_code": 3}\n[rank 0] b\n')
        assert batch.events == [{"event": "exited", "rank": 0, "exit_code": 3}]
        assert batch.shown == b"[rank 0] a\n[rank 0] b\n"
        assert list(batch.raw) == ["rank 0"]

    @pytest.mark.parametrize("line", [b'[stepset] {"event": "exi', b"[stepset] []", b'[stepset] {"event": 3}'])
    def test_that_are_invalid_are_shown_as_lines(self, line: bytes) -> None:
        batch = split(line + b"\n")
        assert not batch.events
        assert batch.shown == b"[node 0] " + line + b"\n"

    def test_printed_by_a_rank_are_text(self) -> None:
        batch = split(b'[rank 0] [stepset] {"event": "failed"}\n')
        assert not batch.events
        assert batch.shown == b'[rank 0] [stepset] {"event": "failed"}\n'


SOURCES = st.sampled_from(["rank 0", "rank 1", "rank 12", "node 0", "prepare-1"])
TEXTS = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b""))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.tuples(SOURCES, st.booleans(), TEXTS), max_size=30), st.data())
def test_every_byte_is_delivered_once_and_in_order_for_any_chunks(
    printed: list[tuple[str, bool, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(b"[%s%s] %s\n" % (s.encode(), b"+" if more else b"", text) for s, more, text in printed)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    batch = split(*pieces)

    for source in {s for s, _, _ in printed}:
        expected = b"".join(text if more else text + b"\n" for s, more, text in printed if s == source)
        got = b"".join(batch.raw[source])
        assert got == (expected if expected.endswith(b"\n") and not last_is_open(printed, source) else expected + b"\n")
    whole = [(s, text) for s, text in Joiner().join(batch.lines)]
    for source in {s for s, _, _ in printed}:
        mine = b"".join(text + b"\n" for s, text in whole if s == source)
        assert mine == b"".join(batch.raw[source])


def last_is_open(printed: list[tuple[str, bool, bytes]], source: str) -> bool:
    return [more for s, more, _ in printed if s == source][-1]


@pytest.mark.parametrize("source", [b"rank \xff", b"rank 0"])
def test_a_row_with_any_bytes_is_a_line(source: bytes) -> None:
    line = line_of(b"[" + source + b"] loss [1] \xff")
    assert line == LogLine(source.decode(errors="replace"), "loss [1] \ufffd")
