"""How long a refusal may be temporary: a server that has just started has not loaded all roles."""

from __future__ import annotations

from stepset.backends.kubernetes.api.refusal_grace import REFUSAL_GRACE, RefusalGrace

NOW = 1000.0


def test_a_refusal_of_a_request_that_was_never_allowed_is_final() -> None:
    assert not RefusalGrace().covers(NOW)


def test_a_refusal_after_an_allowed_request_is_temporary_for_the_grace_period() -> None:
    grace = RefusalGrace()
    grace.granted()
    assert grace.covers(NOW)
    assert grace.covers(NOW + REFUSAL_GRACE - 1)
    assert not grace.covers(NOW + REFUSAL_GRACE)


def test_a_refusal_after_an_outage_is_temporary_for_the_grace_period_without_an_allowed_request() -> None:
    grace = RefusalGrace()
    grace.unreachable()
    assert grace.covers(NOW)
    assert not grace.covers(NOW + REFUSAL_GRACE)


def test_each_outage_starts_the_grace_period_again() -> None:
    grace = RefusalGrace()
    grace.unreachable()
    assert grace.covers(NOW)
    grace.unreachable()
    assert grace.covers(NOW + REFUSAL_GRACE)
