"""How long a server may refuse before that is its answer: one that has just started does not know all roles yet."""

from __future__ import annotations

from stepset.backends.kubernetes.api.refusal_grace import REFUSES_AT_START, RefusalGrace

NOW = 1000.0


def test_what_was_never_allowed_is_refused_for_good() -> None:
    assert not RefusalGrace().covers(NOW)


def test_what_was_allowed_may_be_refused_for_a_while() -> None:
    asked = RefusalGrace()
    asked.granted()
    assert asked.covers(NOW)
    assert asked.covers(NOW + REFUSES_AT_START - 1)
    assert not asked.covers(NOW + REFUSES_AT_START)


def test_a_server_that_was_away_may_refuse_for_a_while_what_it_was_never_asked_for() -> None:
    asked = RefusalGrace()
    asked.unreachable()
    assert asked.covers(NOW)
    assert not asked.covers(NOW + REFUSES_AT_START)


def test_the_while_begins_anew_each_time_that_it_was_away() -> None:
    asked = RefusalGrace()
    asked.unreachable()
    assert asked.covers(NOW)
    asked.unreachable()
    assert asked.covers(NOW + REFUSES_AT_START)
