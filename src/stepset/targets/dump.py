"""Formats manifests as YAML or JSON. Equal objects result in equal bytes with every version of the YAML library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from yaml.emitter import ScalarAnalysis

# Matches strings that PyYAML's emitter writes as a block. Such a string contains only printable characters and `\n`. It
# contains no tabs, and no spaces at the end of a line. PyYAML's own check of a string is a slow loop over all
# characters. The regular expression is faster. This saves much time, because most of a manifest is the agent's source.
_BLOCK = re.compile(r"(?:[\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff])*")
_OTHER_LINE_END = re.compile("[\\x85\\u2028\\u2029]")
# Matches strings that need quotes because of kubectl's parser. Without quotes, PyYAML reads them as strings, but
# kubectl reads them as numbers or booleans (kubectl v1.36, go.yaml.in/yaml/v2).
_OTHER_TYPE = re.compile(
    r"[yYnN]|(?:[-+]_*)?(?:0[bBoOxX][0-9a-fA-F_]+|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?)"
)
_SPACE_AT_END = re.compile(r" (?:\n|\Z)")


def _is_plain_block(text: str) -> bool:
    return bool(_BLOCK.fullmatch(text)) and not _SPACE_AT_END.search(text)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes no aliases, indents lists, and writes strings with several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        if "\n" in scalar and _is_plain_block(scalar):
            return ScalarAnalysis(
                scalar=scalar,
                empty=False,
                multiline=True,
                allow_flow_plain=False,
                allow_block_plain=False,
                allow_single_quoted=True,
                allow_double_quoted=True,
                allow_block=True,
            )
        return super().analyze_scalar(scalar)

    def write_literal(self, text: str) -> None:
        hints = self.determine_block_hints(text)
        self.write_indicator("|" + hints, True)
        self.open_ended = hints.endswith("+")
        self.write_line_break()
        indent = " " * (self.indent or 0)
        lines = text.removesuffix("\n").split("\n")
        self.stream.write("".join(f"{indent}{line}\n" if line else "\n" for line in lines))
        self.line += len(lines)
        self.column = 0
        self.whitespace = self.indention = True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # The string is quoted if a parser could change it. In YAML, some characters besides `\n` also end a line.
    style = '"' if _OTHER_LINE_END.search(text) else "'" if _OTHER_TYPE.fullmatch(text) else None
    if "\n" in text:
        style = "|" if _is_plain_block(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Formats objects as YAML. Each object is a separate YAML document."""
    texts = (
        yaml.dump(dict(each), Dumper=_Dumper, sort_keys=False, width=2**20, allow_unicode=True) for each in objects
    )
    return "---\n".join(texts)


def to_json(objects: Iterable[Mapping[str, Any]]) -> str:
    """Formats objects as a JSON object of kind List. kubectl applies the objects in the order of the list."""
    items = [dict(each) for each in objects]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2, ensure_ascii=False) + "\n"
