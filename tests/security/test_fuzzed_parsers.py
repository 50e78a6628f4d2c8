"""Whatever another program or account writes, its parser returns a value or raises an error that it declares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZED
from tests.security.altered import check_altered, inputs
from tests.security.parsers import PARSERS


@pytest.mark.parametrize("name", PARSERS)
def test_any_input_is_parsed_or_a_declared_error(name: str) -> None:
    check_altered(PARSERS[name])


@FUZZED
@given(st.data())
def test_any_inputs_of_one_process_do_not_affect_each_other(data: st.DataObject) -> None:
    """A parser keeps no state between two inputs: a valid input is parsed after any other."""
    parser = PARSERS[
        data.draw(st.sampled_from(["verdict", "annotation of ranks", "page of a list", "termination message"]))
    ]
    parser.check(data.draw(inputs(parser.valid)))
    assert parser.read(parser.valid) == parser.read(parser.valid)
