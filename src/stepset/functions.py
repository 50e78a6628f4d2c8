"""Turns a Python function into a program of its own, for a job's `function` (Airflow's `@task.distributed_train`).

Arguments and result are passed as JSON instead of pickle, so that the pipeline's Python and the image's may differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stepset.errors import BadInputError

# The order in which the agent looks for a process's rank; then what MLX sets; then frameworks with one process a node.
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "MLX_RANK", "STEPSET_NODE_RANK")

_PROGRAM = '''\
"""The function {name!r}, made a program by stepset."""

from __future__ import annotations

{source}


def _stepset_main() -> None:
    import json, os

    given = json.loads({given!r})
    returned = {name}(*given["args"], **given["kwargs"])
    rank = next((os.environ[name] for name in {rank_variables!r} if name in os.environ), "0")
    path = os.environ.get("STEPSET_RESULT_FILE")
    if returned is None or rank != "0" or not path:
        return
    try:
        result = json.dumps(returned, allow_nan=False)
    except (TypeError, ValueError) as error:
        advice = "return text, numbers, lists and dicts of them"
        raise TypeError("{name} returned what is not JSON: " + str(error) + "; " + advice) from None
    with open(path, "w", encoding="utf-8") as file:
        file.write(result)


if __name__ == "__main__":
    _stepset_main()
'''


def program_text(source: str, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> str:
    """Returns a complete Python program that calls one function in every rank; BadInputError for non-JSON args.

    What the function returns in rank 0 becomes the run's result. Annotations are not evaluated, because the names in
    them belong to the original module; the function imports what it needs itself. `source` is unindented, without
    decorators.
    """
    given = {"args": _json(list(args), "args"), "kwargs": _json(dict(kwargs or {}), "kwargs")}
    return _PROGRAM.format(
        name=name, source=source.strip("\n"), given=json.dumps(given), rank_variables=_RANK_VARIABLES
    )


def _json(value: Any, place: str) -> Any:
    """Returns `value` as plain JSON data: sequences become lists, and mappings dicts."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadInputError(f"{place}: {value} is not JSON; give a finite number")
        return value
    if isinstance(value, Mapping):
        if bad := [key for key in value if not isinstance(key, str)]:
            raise BadInputError(f"{place}: the key {bad[0]!r} is not text; JSON knows only text keys")
        return {key: _json(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_json(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise BadInputError(
        f"{place}: a {type(value).__name__} is not JSON; give text, numbers, lists and mappings of them,"
        " or the path of a file that holds it"
    )
