"""What a training leaves with the assets of its task, and where another one begins because of it.

Used by the operator when its run is over, and before it makes one with `warm_start`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.watch.state import RunStatus

CHECKPOINT = "checkpoint"
"""Where a model lies: a key of an asset event's `extra`, and of an asset's state."""

WARM_START = "STEPSET_WARM_START"
"""The variable that tells the ranks which earlier model to begin with."""

_log = logging.getLogger(__name__)

_KEY = "stepset_warm_start"
"""Of the task state store: which model this task's run has begun with."""

_EVENTS = 20
"""How many of an asset's events are looked at: one that was made by hand may name no checkpoint."""


def event_extra(status: RunStatus, checkpoint_dir: str | None) -> dict[str, Any]:
    """What the event of an asset says of the run that updated it.

    Args:
        status: of the run, which has succeeded.
        checkpoint_dir: of the job.

    Returns:
        `run`; the result, by its own keys where it is a mapping, else as `result`; `metrics`, as the ranks have
        reported them last; `checkpoint`, as the result has it, else `checkpoint_dir`.
    """
    extra: dict[str, Any] = {"run": status.name}
    if status.progress is not None and status.progress.metrics:
        extra["metrics"] = dict(status.progress.metrics)
    if isinstance(status.result, Mapping):
        extra |= status.result
    elif status.result is not None:
        extra["result"] = status.result
    if checkpoint_dir is not None:
        extra.setdefault(CHECKPOINT, checkpoint_dir)
    return extra


def tell(context: Context, outlets: Sequence[Any], extra: Mapping[str, Any]) -> None:
    """Gives the events of a task's outlets what is to be known, and keeps the checkpoint in the assets' state.

    Args:
        context: of the task instance.
        outlets: of the task; what is no asset is left out.
        extra: as `event_extra` makes it.
    """
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
            if CHECKPOINT in extra:
                context["asset_state_store"][outlet].set(CHECKPOINT, extra[CHECKPOINT])


def begin_warm(context: Context, asset: Asset) -> dict[str, str]:
    """What the ranks are told of the model that an asset stands for; remembered for `begun_warm`.

    Args:
        context: of the task instance, whose inlet the asset is.
        asset: the asset.

    Raises:
        AirflowFailException: it is no inlet of the task.
    """
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    checkpoint = latest_checkpoint(context, asset) or ""
    if checkpoint:
        _log.info("warm start from %s, of asset %s", checkpoint, asset.name)
    context["task_state_store"].set(_KEY, checkpoint, retention=NEVER_EXPIRE)
    return begun_warm(context)


def begun_warm(context: Context) -> dict[str, str]:
    """What the ranks were told, for whoever goes on with the task.

    Args:
        context: of the task instance.
    """
    checkpoint = context["task_state_store"].get(_KEY)
    return {WARM_START: str(checkpoint)} if checkpoint else {}


def latest_checkpoint(context: Context, asset: Asset) -> str | None:
    """Where the model lies that an asset stands for: what its latest event that names a checkpoint says.

    The asset's state is asked where there is no such event: `airflow db clean` removes events, not states.

    Args:
        context: of the task instance, whose inlet the asset is.
        asset: the asset.

    Raises:
        AirflowFailException: it is no inlet of the task.
    """
    try:
        events, state = context["inlet_events"][asset], context["asset_state_store"][asset]
    except KeyError as error:
        raise AirflowFailException(
            f"warm_start: asset {asset.name!r} is no inlet of this task; a mapped task needs inlets=[...] as well"
        ) from error
    told = [each.extra or {} for each in events.ascending(False).limit(_EVENTS)]
    found = next((extra[CHECKPOINT] for extra in told if extra.get(CHECKPOINT)), None) or state.get(CHECKPOINT)
    return None if not found else str(found)
