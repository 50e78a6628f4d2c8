"""Checks whether KFP's launcher may have changed the executor input of this step.

The executor input is JSON. The launcher replaces placeholders such as `{{$.inputs.parameters['x']}}` in the JSON text,
and does not escape the inserted values (docs/design/kfp-inputs.md). Therefore a value that contains a placeholder could
insert a quote and replace other inputs of the step. The launcher's own command line contains the executor input before
the replacement.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepset.backends.local.processes import process_stat
from stepset.errors import BadInputError
from stepset_kfp.encoding import INPUT_FLAG, parameters_of, with_decoded_inputs
from stepset_kfp.job_inputs import as_text

_START = re.compile(r"\{\{\$\.(?:in|out)puts\.")
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']*)'\]\}\}")
_UNSAFE = re.compile(r'["\\\x00-\x1f]|(?:^|\{)\$')
"""Text that ends a JSON string, or that can become the start of a further placeholder."""


def decoded_inputs(component_inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs of the component that this step runs, with their encoded values decoded.

    Raises the errors of `check_executor_input` and `with_decoded_inputs`.
    """
    check_executor_input()
    return with_decoded_inputs(component_inputs, parameters_of(sys.argv))


def check_executor_input() -> None:
    """Raises BadInputError if the launcher may have inserted text that changes other inputs of this step."""
    if (text := _before_replacement()) is None:
        return
    try:
        executor_input = json.loads(text)
    except ValueError as error:
        raise BadInputError(
            "the executor input is not valid JSON; KFP inserts the text of a parameter without escaping it, so pass a"
            " text with quotes, backslashes or newlines as a separate input"
        ) from error
    check_insertions(executor_input)


def check_insertions(executor_input: Mapping[str, Any]) -> None:
    """Raises BadInputError if a replacement of placeholders may change the structure of an executor input.

    Args:
        executor_input: the executor input before the replacement.

    >>> check_insertions({"inputs": {"parameterValues": {"a": "{{$.inputs.parameters['b']}}", "b": "1"}}})
    """
    values: Mapping[str, Any] = executor_input.get("inputs", {}).get("parameterValues", {})
    for text in _strings(executor_input):
        if not _START.search(text):
            continue
        names = _PARAMETER.findall(text)
        # `as_text` returns the text that the launcher inserts (getPlaceholders in launcher_v2.go).
        # The inserted text may end with a brace. The next character must not complete a placeholder.
        if "{$" in _PARAMETER.sub("{", text) or any(_UNSAFE.search(as_text(values.get(name))) for name in names):
            where = next((name for name, value in values.items() if text in _strings(value)), "inputs")
            raise BadInputError(
                f"{where}: KFP replaces the placeholders in this text, and does not escape the inserted text, which"
                " could change other inputs; remove {{$.inputs...}} and {{$.outputs...}} from the values of the run, or"
                " pass each parameter as a separate input"
            )


def _before_replacement() -> str | None:
    """Returns the argument `--executor_input` of the outermost ancestor that has this argument: the launcher.

    Without a launcher (KFP's local runner), this is the argument of the step. Returns None without this argument.
    """
    found, pid, words = None, os.getppid(), list(sys.argv)
    while True:
        found = _argument(words) or found
        stat = process_stat(pid) if pid else None
        if stat is None:
            return found
        try:
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
        except OSError:
            return found
        pid = stat.parent


def _argument(words: Sequence[str]) -> str | None:
    return words[words.index(INPUT_FLAG) + 1] if INPUT_FLAG in words[:-1] else None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
