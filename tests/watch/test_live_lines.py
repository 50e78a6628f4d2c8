"""The states of incomplete lines beside complete lines."""

from __future__ import annotations

from stepset.run_status import LogLine
from stepset.watch.lines import OpenLine, Splitter
from stepset.watch.live_lines import live_block, open_states


def test_a_complete_line_ends_the_state_of_its_source_only() -> None:
    splitter = Splitter("node 0")
    states = open_states({}, splitter.feed(b"[rank 0~] 1/9\n[rank 1~] 2/9\n[rank 0] 9/9\n"))
    assert states == {"rank 1": "2/9"}
    states = open_states(states, splitter.feed(b"[rank 1] 9/9\n[rank 1~] 1/9\n"))
    assert states == {"rank 1": "1/9"}
    assert open_states(states, splitter.feed(b"[rank 0] text\n")) == states


def test_only_changes_are_yielded_after_the_lines_and_an_ended_state_is_empty() -> None:
    wanted, line = frozenset({"rank 0"}), LogLine("rank 0", "text")
    first, second = {"rank 0": "1/9", "rank 1": "1/9"}, {"rank 0": "2/9"}
    assert live_block([line, LogLine("rank 1", "x")], {}, first, wanted) == [line, OpenLine("rank 0", "1/9")]
    assert live_block([], first, first, wanted) == []
    assert live_block([], first, second, wanted) == [OpenLine("rank 0", "2/9")]
    assert live_block([line], second, {}, wanted) == [line, OpenLine("rank 0", "")]
    assert live_block([], {}, {}, wanted) == []
