"""Limits the total size of the constant inputs of a pipeline's steps.

KFP stores constant inputs in the Argo Workflow. The size of an Argo Workflow is limited.
docs/design/kfp-inputs.md contains the measurements on which the limit is based.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepset.errors import BadInputError

if TYPE_CHECKING:
    from kfp.dsl.pipeline_context import Pipeline

LIMIT = 60_000
"""The maximum number of characters of the constant inputs of all steps of a pipeline.

Argo refuses a Workflow of more than 1 MiB, and a Workflow contains many copies of each constant input."""
INLINE = 8 * 1024
"""The maximum number of characters of packed code that is passed as an input if a store for code is configured.

Larger code is uploaded to the store."""
_LARGEST = 3
_log = logging.getLogger(__name__)
_spent: WeakKeyDictionary[Pipeline, list[tuple[str, int]]] = WeakKeyDictionary()


def spend(place: str, step: str, inputs: Mapping[str, Any], remedy: str) -> None:
    """Adds the sizes of a step's inputs to the total of the pipeline that is being compiled.

    Args:
        place: the description of the task for messages.
        step: the name of the step's job.
        inputs: the step's inputs. The size of an input is the length of its JSON.
        remedy: the last part of the error, and of the warning that the limit is near. This part states how the user can
            avoid the error.

    Raises:
        BadInputError: the total exceeds LIMIT. The message contains the names and sizes of the largest inputs.
    """
    from kfp.dsl.pipeline_context import Pipeline

    sizes = [(f"{name} of {step}", len(json.dumps(value, default=str))) for name, value in inputs.items()]
    pipeline = Pipeline.get_default_pipeline()
    spent = [*(_spent.get(pipeline, []) if pipeline is not None else []), *sizes]
    total = sum(size for _, size in spent)
    largest = ", ".join(f"{what} ({size})" for what, size in sorted(spent, key=lambda each: -each[1])[:_LARGEST])
    if total > LIMIT:
        raise BadInputError(
            f"the inputs of the pipeline's steps have {total} characters, and Argo Workflows stores about {LIMIT} per"
            f" pipeline; the largest are {largest}; {remedy}",
            where=place,
        )
    if pipeline is not None:
        _spent[pipeline] = spent
    if total > INLINE:
        remaining = f"{LIMIT - total} of {LIMIT} characters remain for inputs of the pipeline's steps"
        near = total > LIMIT * 3 // 4
        advice = f"; {remedy}" if near else ""
        level = logging.WARNING if near else logging.INFO
        _log.log(level, "%s: %s; the largest are %s%s", place, remaining, largest, advice)
