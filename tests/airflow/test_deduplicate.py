"""Lines that a triggerer logged after its last position are read again and not logged twice."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset_airflow.logs.deduplicate import LogDeduplicator

pytestmark = pytest.mark.airflow


@st.composite
def logs(draw: st.DrawFn) -> list[list[str]]:
    """The lines of each of some ranks; lines often repeat within a rank and between ranks."""
    lines = st.sampled_from(["loss=0.5", "loss=0.4", "", "[rank 1] nested", "progress: 40 %", "run a: Running"])
    return [
        [f"[rank {rank}] {line}" for line in draw(st.lists(lines, max_size=12))]
        for rank in range(draw(st.integers(1, 3)))
    ]


def interleaved(draw: st.DrawFn, each: list[list[str]]) -> list[str]:
    """Merges the ranks' lines into one log and keeps the order within each rank."""
    turns = draw(st.permutations([rank for rank, lines in enumerate(each) for _ in lines]))
    left = [iter(lines) for lines in each]
    return [next(left[rank]) for rank in turns]


@given(st.data())
def test_a_successor_logs_the_missing_lines_and_no_line_twice(data: st.DataObject) -> None:
    draw = data.draw
    each = draw(logs())
    noted = [draw(st.integers(0, len(lines))) for lines in each]
    killed = [draw(st.integers(place, len(lines))) for place, lines in zip(noted, each, strict=True)]
    tail = [lines[note:kill] for lines, note, kill in zip(each, noted, killed, strict=True)]
    written = LogDeduplicator(interleaved(draw, tail))
    # The successor reads all lines after the last position again; the ranks interleave differently.
    again = interleaved(draw, [lines[note:] for lines, note in zip(each, noted, strict=True)])
    new = [text for text in again if not written.consume(text)]
    for rank, lines in enumerate(each):
        assert [text for text in new if text.startswith(f"[rank {rank}]")] == lines[killed[rank] :]


def test_a_line_whose_secret_the_log_masks_is_the_same_line() -> None:
    written = LogDeduplicator(["[rank 0] a", "[rank 0] token=***", "[rank 0] b"])
    lines = ["[rank 0] a", "[rank 0] token=abc", "[rank 0] b", "[rank 0] c"]
    assert [line for line in lines if not written.consume(line)] == ["[rank 0] c"]


def test_asterisks_that_a_training_prints_are_not_a_masked_secret() -> None:
    written = LogDeduplicator(["[rank 0] ***** Running training *****"])
    assert not written.consume("[rank 0] something else")
    assert LogDeduplicator(["[rank 0] ***** Running training *****"]).consume("[rank 0] ***** Running training *****")


@pytest.mark.parametrize(
    ("written", "text", "same"),
    [
        ("a***b", "ab", True),
        ("a***b***c", "a1b2b3c", True),
        ("a***b***c", "a1c", False),
        ("***", "", True),
        ("a***a", "a", False),
        ("***b***b", "xb", False),
    ],
)
def test_a_masked_line_is_the_same_if_the_other_text_is_there_in_its_order(written: str, text: str, same: bool) -> None:
    assert LogDeduplicator([f"[rank 0] {written}"]).consume(f"[rank 0] {text}") is same


@pytest.mark.parametrize("unit", ["***", "a***", "***\n"])
def test_a_line_of_asterisks_is_compared_in_linear_time(unit: str) -> None:
    """In a process, because nothing interrupts the search of a regular expression."""
    program = (
        "from stepset_airflow.logs.deduplicate import LogDeduplicator\n"
        f"written = LogDeduplicator(['[rank 0] ' + {unit!r} * 5000 + 'b'])\n"
        "assert not written.consume('[rank 0] ' + 'a' * 20_000)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_logged_lines_that_are_not_read_again_are_skipped() -> None:
    written = LogDeduplicator(["[rank 0] rotated away", "[rank 0] b"])
    assert [line for line in ("[rank 0] b", "[rank 0] c") if not written.consume(line)] == ["[rank 0] c"]


def test_a_rank_may_repeat_lines_after_a_line_that_was_not_logged() -> None:
    written = LogDeduplicator(["[rank 0] a", "[rank 0] b"])
    lines = ["[rank 0] new", "[rank 0] a", "[rank 0] b"]
    assert [line for line in lines if not written.consume(line)] == lines


def test_the_phase_the_notes_and_the_progress_are_distinguished() -> None:
    written = LogDeduplicator(
        ["run a: Pending", "a note", "progress: 1 %", "run a: Running, 2 ranks", "run a continues: since"]
    )
    assert written.phase == "run a: Running, 2 ranks"
    assert written.other == {"a note", "run a continues: since"}
    assert written.consume("progress: 1 %")
    assert not written.consume("progress: 2 %")
