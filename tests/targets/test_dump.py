"""Manifests as text: the fast emitter writes the same bytes as PyYAML's."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.targets.dump import to_yaml


class _Slow(yaml.SafeDumper):
    """The same style, written by PyYAML alone."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    other_line_end = set(text) & set("\u2028\x85")
    odd = set(text) & set("\t\u2028\x85\ufeff") or " \n" in text or text.endswith(" ")
    style = '"' if other_line_end else None
    if "\n" in text:
        style = '"' if odd else "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Slow.add_representer(str, _text)

_TEXTS = st.text(alphabet="ab \n\t:#-é\u2028\x85\xa0\ufeff\U0001f600|>'\"\\", max_size=12)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_TEXTS, _TEXTS)
def test_any_text_is_written_as_by_pyyaml(first: str, second: str) -> None:
    document = {"a": {"b": [first, {"c": second}]}, "z": first}
    slow = yaml.dump(document, Dumper=_Slow, sort_keys=False, width=2**20, allow_unicode=True)
    assert to_yaml([document]) == slow


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_TEXTS)
def test_written_text_is_read_back_unchanged(text: str) -> None:
    document = {"data": {"file": text}}
    assert yaml.safe_load(to_yaml([document])) == document


_INTEGERS = ["08", "0129", "0o17", "0O17", "0B1", "0X1F", "1_000", "+12", "0_", "-_1"]
_FLOATS = ["1e3", "1.5e3", ".5e3", "-1e3", "1._5", "1e1_0", "12345678e2", ".1_", "-._1", "1E5"]
_GO = ["y", "N", "n", *_INTEGERS, *_FLOATS]
"""Text that kubectl reads as a number or a boolean (go.yaml.in/yaml/v2; checked with kubectl v1.36)."""


@pytest.mark.parametrize("text", [*_GO, "on", "null", "~", "1:30", "0x1f", ".inf"])
def test_text_that_kubectl_would_read_as_another_type_is_quoted(text: str) -> None:
    assert to_yaml([{text: text}]) == f"'{text}': '{text}'\n"


@pytest.mark.parametrize("text", ["8Gi", "0.1.0", "a1e3", "1e3b", "yes-1", "ny", "node-0", "2026-01-01T00", "e5"])
def test_other_text_is_not_quoted(text: str) -> None:
    assert to_yaml([{text: text}]) == f"{text}: {text}\n"
