"""Manifests as text: the fast way writes the very bytes that PyYAML's own would."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stepset.targets.dump import to_yaml


class _Slow(yaml.SafeDumper):
    """The same style, all by PyYAML itself."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Slow.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)

_TEXTS = st.text(alphabet="ab \n\t:#-é\u2028\x85\xa0\ufeff\U0001f600|>'\"\\", max_size=12)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_TEXTS, _TEXTS)
def test_any_text_is_written_as_pyyaml_writes_it(first: str, second: str) -> None:
    document = {"a": {"b": [first, {"c": second}]}, "z": first}
    slow = yaml.dump(document, Dumper=_Slow, sort_keys=False, width=2**20, allow_unicode=True)
    assert to_yaml([document]) == slow


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_TEXTS)
def test_what_is_written_reads_back(text: str) -> None:
    document = {"data": {"file": text}}
    if "\ufeff" not in text:  # PyYAML writes a byte order mark it does not read
        assert yaml.safe_load(to_yaml([document])) == document
