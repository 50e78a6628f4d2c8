"""Manifests as text: the same bytes for the same objects, every time and with every YAML library's version.

Called by `stepset render` and by the golden files' test.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Plain YAML: no aliases, lists indented under their key, text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as one YAML stream, a document each."""
    texts = (
        yaml.dump(dict(each), Dumper=_Dumper, sort_keys=False, width=2**20, allow_unicode=True) for each in objects
    )
    return "---\n".join(texts)


def to_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as one JSON List, which kubectl applies in its order."""
    items = [dict(each) for each in objects]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2, ensure_ascii=False) + "\n"
