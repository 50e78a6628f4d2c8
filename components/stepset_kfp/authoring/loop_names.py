"""Checks the name of a job if the name contains the item of a `dsl.ParallelFor` over constants."""

from __future__ import annotations

from collections.abc import Iterator

from stepset.errors import BadInputError
from stepset.spec.names import check_dns_1035
from stepset_kfp.authoring.encoding import is_channel, text_parts


def check_loop_name(name: object) -> None:
    """Replaces the loop's item in `name` by each constant, and checks the resulting names.

    Raises BadInputError if one of the resulting names is not valid for a job.

    A name that contains other run-time values, or items of several loops, is not checked.
    """
    for text in _names(name) if isinstance(name, str) else ():
        try:
            check_dns_1035(text)
        except ValueError as error:
            raise BadInputError(
                f"name: {error}; leave name out, or loop over mappings of text that contain a name, such as"
                ' {"lr": "0.1", "run": "fit-1"}, with name=item.run'
            ) from error


def _names(name: str) -> Iterator[str]:
    """Yields the name for each item of the loop."""
    from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument

    parts = list(text_parts(name))
    channels = [part for part in parts if is_channel(part)]
    # A loop argument returns a field for every attribute name. Therefore `isinstance` is used instead of `hasattr`.
    owners = [each.loop_argument if isinstance(each, LoopArgumentVariable) else each for each in channels]
    loops = {id(loop): loop for loop in owners}
    if len(loops) != 1 or not isinstance(loop := next(iter(loops.values())), LoopParameterArgument):
        return
    for item in loop.items_or_pipeline_channel if loop.is_with_items_loop_argument else ():
        values = [
            item.get(part.subvar_name) if isinstance(part, LoopArgumentVariable) else item if is_channel(part) else part
            for part in parts
        ]
        # Names with a float such as 1.0 are not checked, because the step may write this float differently from `str`.
        if all(isinstance(value, (str, int)) or (isinstance(value, float) and value % 1) for value in values):
            yield "".join(map(str, values))
