"""The checkpoint and metrics of a training in its task's assets, and the checkpoint that a `warm_start` begins with."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.task_state import set_forever

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.watch.state import RunStatus

CHECKPOINT = "checkpoint"
"""Key of the model's location in an asset event's `extra` and in an asset's state."""

WARM_START = "STEPSET_WARM_START"
"""The variable that names the checkpoint to start from to the ranks."""

_log = logging.getLogger(__name__)

_KEY = "stepset_warm_start"
"""Key in the task state store: the checkpoint with which this task's run has begun."""

_EVENTS = 20
"""How many of an asset's events are read: one that was created by hand may name no checkpoint."""


def event_extra(status: RunStatus, checkpoint_dir: str | None) -> dict[str, Any]:
    """Returns the `extra` of the events of the assets that a run has updated.

    `run`; the result, by its own keys if it is a mapping, else as `result`; `metrics`, as the ranks have reported them
    last; `checkpoint`, of the result, else `checkpoint_dir`.
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
    """Adds `extra` to the events of the assets among `outlets`, and stores the checkpoint in the assets' state."""
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
            if CHECKPOINT in extra:
                context["asset_state_store"][outlet].set(CHECKPOINT, extra[CHECKPOINT])


def begin_warm(context: Context, asset: Asset) -> dict[str, str]:
    """Returns the variables of a warm start, and stores them for `begun_warm`; raises as `latest_checkpoint`."""
    checkpoint = latest_checkpoint(context, asset) or ""
    if checkpoint:
        _log.info("warm start from %s, of asset %s", checkpoint, asset.name)
    set_forever(context["task_state_store"], _KEY, checkpoint)
    return begun_warm(context)


def begun_warm(context: Context) -> dict[str, str]:
    """Returns the variables of `begin_warm`, when the task continues."""
    checkpoint = context["task_state_store"].get(_KEY)
    return {WARM_START: str(checkpoint)} if checkpoint else {}


def latest_checkpoint(context: Context, asset: Asset) -> str | None:
    """Returns the checkpoint of an asset's latest event; raises AirflowFailException for an asset that is no inlet.

    If no event names one, the asset's state does: `airflow db clean` removes events, not states.
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
