"""`LogCursor` delivers each line of a pod's log once and in order, for any cuts between requests.

`Kubelet` simulates the responses of the kubelet (k8s.io/cri-client v0.36.3 pkg/logs/logs.go) from lines and parts of
lines as containerd stores them. tests/cluster/test_logs.py tests the real kubelet.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.watch import log_cursor
from stepset.watch.log_cursor import LogCursor

START = datetime(2026, 3, 29, 0, 59, 58, tzinfo=UTC)
NO_OFFSET = timedelta(0)
ERROR = b'rpc error: code = NotFound desc = an error occurred when try to find container "2f": not found'


@dataclass(frozen=True)
class Part:
    """A line, or a part of one, as stored by the container runtime.

    Args:
        at: nanoseconds since START.
        text: without a line end.
        continues: whether the line continues in another part.
        zone: time zone of the node at that time.
    """

    at: int
    text: bytes
    continues: bool = False
    zone: timedelta = NO_OFFSET

    @property
    def stamp(self) -> bytes:
        moment = (START + timedelta(seconds=self.at // 10**9)).astimezone(timezone(self.zone))
        offset = moment.strftime("%z")
        zone = f"{offset[:3]}:{offset[3:]}" if self.zone else "Z"
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{self.at % 10**9:09}{zone}".encode()


class Kubelet:
    """Contains a container's log and responds to requests for it."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts

    def response(self, since: str | None) -> bytes:
        start = START if since is None else datetime.fromisoformat(since)
        oldest = int((start - START).total_seconds()) * 10**9
        out, at_line = [], True
        for part in self.parts:
            if since is None or part.at >= oldest:
                out.append((part.stamp + b" " if at_line else b"") + part.text + (b"" if part.continues else b"\n"))
            at_line = not part.continues
        return b"".join(out)

    @property
    def printed(self) -> bytes:
        return b"".join(part.text + (b"" if part.continues else b"\n") for part in self.parts)


def numbered(count: int, step: int = 10**7, zone: timedelta = NO_OFFSET) -> list[Part]:
    return [Part(n * step, b"line %d" % n, zone=zone) for n in range(count)]


def read(kubelet: Kubelet, cuts: list[int], error: bytes = b"") -> bytes:
    """Reads the log: `cuts` are the bytes read from the first responses; the last response is read to its end."""
    reader, out = LogCursor(), b""
    for cut in cuts:
        out += reader.feed(kubelet.response(reader.since)[:cut] + error)
        reader.cut()
    return out + reader.feed(kubelet.response(reader.since)) + reader.finish()


class TestUncutLog:
    def test_lines_are_delivered_without_timestamps(self) -> None:
        assert read(Kubelet([Part(1, b"a"), Part(2, b""), Part(3, b"  c ")]), []) == b"a\n\n  c \n"

    def test_the_text_of_a_line_may_begin_with_a_timestamp(self) -> None:
        own = Part(5, b"x").stamp + b" mine"
        assert read(Kubelet([Part(1, own)]), [10]) == own + b"\n"

    def test_all_bytes_are_unchanged(self) -> None:
        text = bytes(set(range(256)) - {10})
        assert read(Kubelet([Part(1, text)]), []) == text + b"\n"

    def test_parts_of_a_line_are_joined(self) -> None:
        parts = [Part(1, b"one ", True), Part(2, b"two ", True), Part(3, b"three"), Part(4, b"next")]
        assert read(Kubelet(parts), []) == b"one two three\nnext\n"

    def test_a_last_line_without_a_line_end_gets_one(self) -> None:
        assert read(Kubelet([Part(1, b"a"), Part(2, b"b", True)]), []) == b"a\nb\n"

    def test_an_empty_log_is_empty(self) -> None:
        assert read(Kubelet([]), [0, 0]) == b""

    def test_timestamps_are_kept_on_request(self) -> None:
        kubelet = Kubelet(numbered(50))
        reader, whole = LogCursor(stamped=True), kubelet.response(None)
        first = reader.feed(whole[:999])
        reader.cut()
        assert first + reader.feed(kubelet.response(reader.since)) + reader.finish() == whole


class TestCuts:
    def test_the_next_request_starts_a_second_before_the_last_line(self) -> None:
        reader = LogCursor()
        assert reader.since is None
        reader.feed(Kubelet([Part(3_999_999_999, b"a")]).response(None))
        assert reader.since == "2026-03-29T01:00:00Z"

    def test_the_next_request_is_in_utc_for_any_time_zone_of_the_node(self) -> None:
        reader = LogCursor()
        reader.feed(Kubelet([Part(3_500_000_000, b"a", zone=timedelta(hours=8))]).response(None))
        assert reader.since == "2026-03-29T01:00:00Z"

    @pytest.mark.parametrize("cut", range(130))
    def test_a_response_may_end_after_any_byte(self, cut: int) -> None:
        kubelet = Kubelet([Part(1, b"a"), Part(1, b"b"), Part(1, b"a", True), Part(2, b"c"), Part(2_500_000_000, b"d")])
        assert read(kubelet, [cut]) == kubelet.printed

    def test_equal_lines_with_equal_timestamps_are_delivered_as_often_as_printed(self) -> None:
        kubelet = Kubelet([Part(7, b"same")] * 9)
        assert read(kubelet, [80, 200, 10, 190]) == b"same\n" * 9

    def test_the_end_of_a_line_that_began_before_the_requested_time_is_dropped(self) -> None:
        parts = [Part(1, b"long ", True), Part(5 * 10**9, b"line"), Part(5 * 10**9 + 1, b"next")]
        kubelet, reader = Kubelet(parts), LogCursor()
        out = reader.feed(kubelet.response(None))
        assert kubelet.response(reader.since).startswith(b"line\n")
        reader.cut()
        assert out + reader.feed(kubelet.response(reader.since)) + reader.finish() == kubelet.printed

    def test_lines_of_two_streams_may_be_slightly_out_of_order(self) -> None:
        second = 10**9
        parts = [Part(second + 9, b"out"), Part(second - 5, b"err"), Part(second + 3, b"out"), Part(second - 1, b"err")]
        kubelet = Kubelet(parts)
        size = len(kubelet.response(None))
        for cut in range(size):
            assert read(kubelet, [cut]) == kubelet.printed

    def test_the_start_of_daylight_saving_time_has_no_effect(self) -> None:
        parts = numbered(4, 10**9) + [Part(p.at + 4 * 10**9, p.text, zone=timedelta(hours=1)) for p in numbered(4)]
        kubelet = Kubelet(parts)
        for cut in range(len(kubelet.response(None))):
            assert read(kubelet, [cut]) == kubelet.printed

    def test_lines_that_were_rotated_away_are_skipped(self) -> None:
        old, new = numbered(10), [Part(10**9 + n, b"new %d" % n) for n in range(3)]
        reader = LogCursor()
        out = reader.feed(Kubelet(old).response(None))
        reader.cut()
        assert out + reader.feed(Kubelet(new).response(reader.since)) + reader.finish() == Kubelet(old + new).printed

    def test_the_log_of_the_next_start_of_the_container_follows(self) -> None:
        first, second = Kubelet(numbered(3)), Kubelet([Part(10**9, b"again")])
        reader = LogCursor()
        out = reader.feed(first.response(None)[:60])
        reader.cut()
        out += reader.feed(first.response(reader.since)) + reader.finish()
        assert out + reader.feed(second.response(reader.since)) + reader.finish() == first.printed + second.printed

    @pytest.mark.parametrize("cut", [0, 1, 60, 100])
    def test_jumped_states_whether_a_response_lacks_the_last_line(self, cut: int) -> None:
        first, second = Kubelet(numbered(5)), Kubelet([Part(10**9, b"again")])
        reader = LogCursor()
        reader.feed(first.response(None)[:cut])
        reader.cut()
        reader.feed(first.response(reader.since))
        assert not reader.jumped
        reader.cut()
        reader.feed(second.response(reader.since))
        assert reader.jumped
        reader.cut()
        assert not reader.jumped


class TestKubeletErrors:
    """The kubelet writes its errors into the response, where they are not part of the log."""

    @pytest.mark.parametrize("lines", [0, 1, 3])
    def test_are_not_delivered_as_lines(self, lines: int) -> None:
        kubelet, reader = Kubelet(numbered(5)), LogCursor()
        cut = len(Kubelet(numbered(lines)).response(None))
        out = reader.feed(kubelet.response(None)[:cut] + ERROR)
        assert reader.error == ERROR.decode()
        reader.cut()
        out += reader.feed(kubelet.response(reader.since)) + reader.finish()
        assert (out, reader.error) == (kubelet.printed, "")

    def test_within_a_line_are_dropped(self) -> None:
        kubelet = Kubelet([Part(1, b"a"), Part(2, b"part ", True), Part(3, b"rest")])
        assert read(kubelet, [len(kubelet.response(None)) - 5], ERROR) == kubelet.printed

    def test_may_have_several_lines(self) -> None:
        kubelet = Kubelet(numbered(5))
        assert read(kubelet, [len(Kubelet(numbered(2)).response(None))], b"failed:\n  x\n") == kubelet.printed


class TestVeryLongLines:
    def test_are_delivered_in_pieces_with_bounded_memory(self) -> None:
        reader, block, size = LogCursor(), b"x" * 16384, 0
        tracemalloc.start()
        reader.feed(Part(1, b"").stamp + b" ")
        for _ in range(2000):
            size += len(reader.feed(block))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert size + len(reader.finish()) == 2000 * len(block) + 1
        assert peak < 8 * log_cursor.LONG

    def test_continue_after_a_cut(self) -> None:
        parts = [Part(n, b"%05d" % n * 3000, True) for n in range(60)]
        kubelet = Kubelet([Part(0, b"before"), *parts, Part(61, b""), Part(62, b"after")])
        size = len(kubelet.response(None))
        assert read(kubelet, [size // 4, size // 2, size // 8, size - 20], ERROR) == kubelet.printed

    def test_end_if_the_rest_was_rotated_away(self) -> None:
        reader = LogCursor()
        out = reader.feed(Part(1, b"x" * 300_000, True).stamp + b" " + b"x" * 300_000)
        reader.cut()
        out += reader.feed(Kubelet([Part(5, b"y"), Part(6, b"z")]).response(None)) + reader.finish()
        assert out == b"x" * (300_000 - 4096) + b"\ny\nz\n"


@st.composite
def logs(draw: st.DrawFn) -> Kubelet:
    """Logs with parts, equal timestamps, timestamps out of order, and a node whose time zone changes."""
    texts = st.binary(max_size=60).map(lambda text: text.replace(b"\n", b" "))
    count = draw(st.integers(0, 25))
    steps = st.sampled_from([0, 0, 1, 999, 300_000_000, 1_000_000_000, 2_500_000_000])
    zones = draw(st.sampled_from([(NO_OFFSET, NO_OFFSET), (timedelta(hours=8),) * 2, (NO_OFFSET, timedelta(hours=1))]))
    if draw(st.booleans()):  # in order, some of them equal
        times, now = [], 0
        for _ in range(count):
            now += draw(steps)
            times.append(now)
    else:  # all different, and up to a second out of order
        jitter = st.integers(0, 900_000_000)
        times = [1000 * (n * 150_000 + draw(jitter) // 1000) + n for n in range(count)]
    parts = []
    for n, at in enumerate(times):
        continues = draw(st.booleans()) and n < count - 1
        zone = zones[0] if n < count // 2 else zones[1]
        parts.append(Part(at, draw(texts) or (b"p" if continues else b""), continues, zone))
    return Kubelet(parts)


def chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Splits `data` into chunks of these sizes, repeated."""
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


@given(
    logs(),
    st.lists(st.tuples(st.integers(0, 1500), st.booleans()), max_size=8),
    st.lists(st.integers(1, 200), min_size=1, max_size=5),
    st.sampled_from([(60, 8), (200, 120), (1 << 17, 1 << 12)]),
)
@settings(deadline=None)
def test_any_log_is_delivered_once_and_in_order_for_any_cuts(
    kubelet: Kubelet, cuts: list[tuple[int, bool]], sizes: list[int], limits: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_cursor, "LONG", limits[0])
        patch.setattr(log_cursor, "_HELD", limits[1])
        reader, out = LogCursor(), b""
        for cut, fails in cuts:
            # The bytes held back of a long line must include the whole error.
            error = ERROR if fails and limits[1] > len(ERROR) else b""
            for chunk in chunks(kubelet.response(reader.since)[:cut] + error, sizes):
                out += reader.feed(chunk)
            reader.cut()
        for chunk in chunks(kubelet.response(reader.since), sizes):
            out += reader.feed(chunk)
        out += reader.finish()
    assert out == kubelet.printed


@pytest.mark.parametrize("stamped", [False, True])
@given(data=st.data())
def test_another_process_continues_at_the_position_of_the_first(data: st.DataObject, stamped: bool) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    gaps = data.draw(st.lists(st.sampled_from([0, 0, 1, 700_000]), min_size=1, max_size=12))
    rows, at = [], start
    for number, gap in enumerate(gaps):
        at += timedelta(microseconds=gap)
        rows.append(at.strftime("%Y-%m-%dT%H:%M:%S.%f").encode() + b"000Z line %d\n" % number)
    log = b"".join(rows)
    first = LogCursor(stamped=stamped)
    delivered = first.feed(log[: data.draw(st.integers(0, len(log)))])
    first.cut()
    second = LogCursor.from_dict(json.loads(json.dumps(first.to_dict())), stamped=stamped)
    delivered += second.feed(log) + second.finish()
    assert delivered == b"".join(rows if stamped else [row.split(b" ", 1)[1] for row in rows])
