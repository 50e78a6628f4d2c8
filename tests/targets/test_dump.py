"""Manifests as text: the fast emitter writes the same bytes as PyYAML's."""

from __future__ import annotations

from typing import Any

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
