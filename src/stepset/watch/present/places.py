"""The words for ranks, their places and their collectives, in the reports of hangs and of stacks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepset.hang import CollectiveCall, StackFrame
from stepset.printable import printable
from stepset.watch.crash import in_library

_SIZES = {
    **{"float64": 8, "int64": 8, "complexfloat": 8, "complexdouble": 16, "float32": 4, "int32": 4},
    **{"float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
"""The number of bytes of an element, by the name of the data type in the agent's reports."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def ranks_named(ranks: Iterable[int], most: int = 8) -> str:
    """Returns a list of ranks as text.

    Args:
        most: the maximum number of ranks and of ranges of ranks in the text.

    >>> ranks_named((2,)), ranks_named((3, 0, 1)), ranks_named((0, 1, 2, 5)), ranks_named((0, 2, 4), 2)
    ('rank 2', 'ranks 0, 1, 3', 'ranks 0-2, 5', 'ranks 0, 2 and 1 more')
    """
    numbers = sorted(set(ranks))
    parts = ranges(numbers)
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(parts[:most])}{more}"


def ranges(numbers: Sequence[int]) -> list[str]:
    """Returns sorted numbers as text. Three or more consecutive numbers are a range.

    >>> ranges([0, 1, 2, 5, 7, 8])
    ['0-2', '5', '7', '8']
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]


def place_words(frame: StackFrame | None) -> str:
    """Returns the file and the line of a frame, or "" if there is no frame. Files of libraries have their directory.

    >>> place_words(StackFrame("load", "/app/data.py", 17))
    'data.py:17'
    >>> place_words(StackFrame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 3000))
    'distributed/distributed_c10d.py:3000'
    """
    if frame is None:
        return ""
    parts = frame.file.split("/")[-2 if in_library(frame.file) else -1 :]
    return f"{printable('/'.join(parts)) or '?'}:{frame.line}"


def collective_words(call: CollectiveCall) -> str:
    """Returns a collective with its number, backend, data type and size.

    >>> collective_words(CollectiveCall("all_reduce", 1185, "default_pg", "gloo", "float32", 1048576))
    'all_reduce #1185 (gloo, float32, 4 MiB)'
    """
    facts = (
        call.backend,
        call.dtype,
        "" if call.elements is None else tensor_size(call.dtype, call.elements),
        f"group {call.group}" if call.group not in ("", "default_pg", "0") else "",
    )
    shown = printable(", ".join(fact for fact in facts if fact))
    return f"{call_name(call)}{f' ({shown})' if shown else ''}"


def call_name(call: CollectiveCall) -> str:
    """Returns the name of a collective with its number."""
    name = call.name or "a collective"
    return printable(f"{name} #{call.number}" if call.number else name)


def tensor_size(dtype: str, elements: int) -> str:
    """Returns the size of tensors, or "" if the data type is unknown.

    >>> tensor_size("float32", 1048576), tensor_size("int8", 1000), tensor_size("quint4x2", 8)
    ('4 MiB', '1000 bytes', '')

    Args:
        elements: the number of elements of all tensors.
    """
    size = _SIZES.get(dtype)
    if size is None:
        return ""
    count, unit = float(elements * size), 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.4g} {_UNITS[unit]}"
