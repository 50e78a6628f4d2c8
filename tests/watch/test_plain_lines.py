"""Pods without an agent: all lines have the pod as their source."""

from hypothesis import given
from hypothesis import strategies as st

from stepset.run_status import Progress
from stepset.watch.lines import PART_LIMIT, Batch, Joiner
from stepset.watch.plain_lines import PlainSplitter
from stepset.watch.reported import Report


def split(*chunks: bytes) -> Batch:
    splitter, whole = PlainSplitter("node 3"), Batch()
    for batch in [*map(splitter.feed, chunks), splitter.finish()]:
        whole.lines += batch.lines
        whole.shown += batch.shown
        whole.progress += batch.progress
        whole.unread_report |= batch.unread_report
        whole.events += batch.events
        for source, pieces in batch.raw.items():
            whole.raw.setdefault(source, []).extend(pieces)
        whole.parts |= batch.parts
    return whole


def test_lines_that_resemble_the_agents_are_text() -> None:
    batch = split(b'[info] starting\n[rank 0] x\n[stepset] {"event": "failed"}\n')
    assert [(head.source, text) for head, text in batch.lines] == [
        ("node 3", b"[info] starting"),
        ("node 3", b"[rank 0] x"),
        ("node 3", b'[stepset] {"event": "failed"}'),
    ]
    assert batch.events == []
    assert batch.shown.startswith(b"[node 3] [info] starting\n[node 3] [rank 0] x\n")


def test_progress_is_reported_and_not_shown() -> None:
    batch = split(b'a\n{"stepset": {"step": 3}}\nb\n')
    assert batch.progress == [Report(Progress(step=3), source="node 3")]
    assert [text for _, text in batch.lines] == [b"a", b"b"]
    assert batch.shown == b"[node 3] a\n[node 3] b\n"
    assert not batch.unread_report
    assert split(b"a\n{'stepset': {'step': 3}}\n").unread_report


def test_a_very_long_line_is_split_into_parts_that_join_to_one() -> None:
    batch = split(*[b"x" * 1_000_000] * 5, b"y\nnext")
    assert batch.parts
    assert list(Joiner().join(batch.lines)) == [("node 3", b"x" * 5_000_000 + b"y"), ("node 3", b"next")]
    assert max(len(text) for _, text in batch.lines) <= PART_LIMIT + 1_000_000


def test_progress_at_the_end_of_a_long_line_is_text() -> None:
    batch = split(b"x" * (PART_LIMIT + 1), b'{"stepset": {"step": 3}}\n')
    assert batch.progress == []
    assert b"".join(text for _, text in batch.lines).endswith(b'x{"stepset": {"step": 3}}')


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_every_byte_is_delivered_once_for_any_chunks(data: bytes, sizes: list[int]) -> None:
    chunks, at, turn = [], 0, 0
    while at < len(data):
        chunks.append(data[at : at + sizes[turn % len(sizes)]])
        at, turn = at + len(chunks[-1]), turn + 1
    ended = data if not data or data.endswith(b"\n") else data + b"\n"
    batch = split(*chunks)
    assert b"".join(batch.raw.get("node 3", [])) == ended
    assert batch.shown == b"".join(b"[node 3] %s\n" % row for row in ended.split(b"\n")[:-1])
