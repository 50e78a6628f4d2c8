"""What a triggerer wrote after its last note comes again, and is written no second time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset_airflow.logs.deduplicate import LogDeduplicator

pytestmark = pytest.mark.airflow


@st.composite
def logs(draw: st.DrawFn) -> list[list[str]]:
    """Of some ranks, what each says; often the same twice, or what another one says."""
    lines = st.sampled_from(["loss=0.5", "loss=0.4", "", "[rank 1] nested", "progress: 40 %", "run a: Running"])
    return [
        [f"[rank {rank}] {line}" for line in draw(st.lists(lines, max_size=12))]
        for rank in range(draw(st.integers(1, 3)))
    ]


def interleaved(draw: st.DrawFn, each: list[list[str]]) -> list[str]:
    """All of them in one log; each rank's in their order."""
    turns = draw(st.permutations([rank for rank, lines in enumerate(each) for _ in lines]))
    left = [iter(lines) for lines in each]
    return [next(left[rank]) for rank in turns]


@given(st.data())
def test_who_goes_on_from_a_note_writes_what_was_not_written_and_nothing_twice(data: st.DataObject) -> None:
    draw = data.draw
    each = draw(logs())
    noted = [draw(st.integers(0, len(lines))) for lines in each]
    killed = [draw(st.integers(place, len(lines))) for place, lines in zip(noted, each, strict=True)]
    tail = [lines[note:kill] for lines, note, kill in zip(each, noted, killed, strict=True)]
    written = LogDeduplicator(interleaved(draw, tail))
    # Whoever goes on comes by all lines after the note, and those of several ranks in another order.
    again = interleaved(draw, [lines[note:] for lines, note in zip(each, noted, strict=True)])
    new = [text for text in again if not written.has(text)]
    for rank, lines in enumerate(each):
        assert [text for text in new if text.startswith(f"[rank {rank}]")] == lines[killed[rank] :]


def test_a_secret_that_only_the_log_hides_is_the_same_line() -> None:
    written = LogDeduplicator(["[rank 0] a", "[rank 0] token=***", "[rank 0] b"])
    lines = ["[rank 0] a", "[rank 0] token=abc", "[rank 0] b", "[rank 0] c"]
    assert [line for line in lines if not written.has(line)] == ["[rank 0] c"]


def test_stars_that_a_training_prints_are_no_secret() -> None:
    written = LogDeduplicator(["[rank 0] ***** Running training *****"])
    assert not written.has("[rank 0] something else")
    assert LogDeduplicator(["[rank 0] ***** Running training *****"]).has("[rank 0] ***** Running training *****")


def test_lines_that_do_not_come_again_are_passed_over() -> None:
    written = LogDeduplicator(["[rank 0] rotated away", "[rank 0] b"])
    assert [line for line in ("[rank 0] b", "[rank 0] c") if not written.has(line)] == ["[rank 0] c"]


def test_once_a_rank_is_past_what_was_written_it_may_say_the_same_again() -> None:
    written = LogDeduplicator(["[rank 0] a", "[rank 0] b"])
    said = ["[rank 0] new", "[rank 0] a", "[rank 0] b"]
    assert [line for line in said if not written.has(line)] == said


def test_where_the_run_is_and_what_else_was_said_are_told_apart() -> None:
    written = LogDeduplicator(
        ["run a: Pending", "a note", "progress: 1 %", "run a: Running, 2 ranks", "run a goes on: since"]
    )
    assert written.phase == "run a: Running, 2 ranks"
    assert written.notes == {"a note", "run a goes on: since"}
    assert written.has("progress: 1 %")
    assert not written.has("progress: 2 %")
