"""How long a server may refuse before that is its answer: one that has just started does not know all roles yet."""

from __future__ import annotations

from stepset.backends.kubernetes.refusals import REFUSES_AT_START, Forbearance

NOW = 1000.0


def test_what_was_never_allowed_is_refused_for_good() -> None:
    assert not Forbearance().bears(NOW)


def test_what_was_allowed_may_be_refused_for_a_while() -> None:
    asked = Forbearance()
    asked.granted()
    assert asked.bears(NOW)
    assert asked.bears(NOW + REFUSES_AT_START - 1)
    assert not asked.bears(NOW + REFUSES_AT_START)


def test_a_server_that_was_away_may_refuse_for_a_while_what_it_was_never_asked_for() -> None:
    asked = Forbearance()
    asked.unreachable()
    assert asked.bears(NOW)
    assert not asked.bears(NOW + REFUSES_AT_START)


def test_the_while_begins_anew_each_time_that_it_was_away() -> None:
    asked = Forbearance()
    asked.unreachable()
    assert asked.bears(NOW)
    asked.unreachable()
    assert asked.bears(NOW + REFUSES_AT_START)
