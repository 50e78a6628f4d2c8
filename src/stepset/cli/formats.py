"""Output for programs: JSON and YAML. Used by every command with `--output`."""

from __future__ import annotations

import json
from typing import Any

from stepset.errors import BadInputError


def check_format(given: str, *known: str) -> None:
    """Raises BadInputError unless `given` is one of `known`."""
    if given not in known:
        raise BadInputError(f"--output: {given!r} is not known; use {', '.join(known[:-1])} or {known[-1]}")


def as_json(data: Any) -> str:
    """Plain data as indented JSON."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_yaml(data: Any) -> str:
    """Plain data as YAML, in the order it has."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return text
