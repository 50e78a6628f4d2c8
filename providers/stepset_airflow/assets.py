"""Writes a training's checkpoint and metrics to its task's assets, and reads the checkpoint of a `warm_start`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.task_state import set_forever

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus

CHECKPOINT = "checkpoint"
"""Key of the model's location in an asset event's `extra` and in an asset's state."""

WARM_START = "STEPSET_WARM_START"
"""Environment variable of the ranks: the checkpoint from which they start."""

_log = logging.getLogger(__name__)

_KEY = "stepset_warm_start"
"""Key in the task state store: the checkpoint from which this task's run started."""

_EVENTS = 20
"""Maximum number of an asset's events to read: the latest ones may contain no checkpoint if users created them."""


def event_extra(status: RunStatus, checkpoint_dir: str | None) -> dict[str, Any]:
    """Returns the `extra` of the events of the assets that a run has updated.

    Its keys are `run`; the result's keys if the result is a mapping, else `result`; `metrics`, the last values that
    the ranks reported; and `checkpoint`, from the result, else `checkpoint_dir`.
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


def report_to_assets(context: Context, outlets: Sequence[Any], extra: Mapping[str, Any]) -> None:
    """Adds `extra` to the events of the assets among `outlets`, and stores the checkpoint in the assets' state."""
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
            if CHECKPOINT in extra:
                context["asset_state_store"][outlet].set(CHECKPOINT, extra[CHECKPOINT])


def start_warm(context: Context, asset: Asset) -> dict[str, str]:
    """Returns the variables of a warm start, and stores them for `resume_warm`; raises like `latest_checkpoint`."""
    checkpoint = latest_checkpoint(context, asset) or ""
    if checkpoint:
        _log.info("warm start from checkpoint %s of asset %s", checkpoint, asset.name)
    set_forever(context["task_state_store"], _KEY, checkpoint)
    return resume_warm(context)


def resume_warm(context: Context) -> dict[str, str]:
    """Returns the variables that `start_warm` stored."""
    checkpoint = context["task_state_store"].get(_KEY)
    return {WARM_START: str(checkpoint)} if checkpoint else {}


def latest_checkpoint(context: Context, asset: Asset) -> str | None:
    """Returns the checkpoint in the latest of an asset's events that has one, else in its state; None if there is none.

    `airflow db clean` deletes events, but not states. Raises AirflowFailException if the asset is not an inlet.
    """
    try:
        events, state = context["inlet_events"][asset], context["asset_state_store"][asset]
    except KeyError as error:
        raise AirflowFailException(
            f"warm_start: asset {asset.name!r} is not an inlet of this task; a mapped task also needs inlets=[...]"
        ) from error
    extras = [each.extra or {} for each in events.ascending(False).limit(_EVENTS)]
    found = next((extra[CHECKPOINT] for extra in extras if extra.get(CHECKPOINT)), None) or state.get(CHECKPOINT)
    return None if not found else str(found)
