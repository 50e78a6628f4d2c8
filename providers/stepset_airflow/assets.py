"""Stores the checkpoint and the metrics of a run in assets, and reads the checkpoint for the parameter `warm_start`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.task_state import set_forever
from stepset_airflow.transferable import error_text, transferable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stepset.run_status import RunStatus

CHECKPOINT = "checkpoint"
"""The key of the checkpoint's location in the `extra` of an asset event and in the state of an asset."""

WARM_START = "STEPSET_WARM_START"
"""The environment variable that contains the checkpoint from which the ranks start."""


_KEY = "stepset_warm_start"
"""The key in the task state store. The value is the checkpoint from which the run of this task started."""

_EVENTS = 20
"""Maximum number of events of an asset that are searched for a checkpoint.

Several events are searched, because an event that a user created may contain no checkpoint.
"""


def event_extra(status: RunStatus, checkpoint_dir: str | None) -> dict[str, Any]:
    """Returns the `extra` for the asset events of a run. When the task has finished, each outlet gets such an event.

    The keys of `extra`:

    - `run`: the name of the run.
    - `metrics`: the last values of the metrics that the ranks reported.
    - `result`: the result of the run. If the result is a mapping, its entries are added to `extra` instead.
    - `checkpoint`: the checkpoint in the result. If the result contains no checkpoint, the value is `checkpoint_dir`.
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
    return transferable(extra)  # type: ignore[no-any-return]  # a mapping remains one


def report_to_assets(
    context: Context, outlets: Sequence[Any], extra: Mapping[str, Any], warn: Callable[[str], None]
) -> None:
    """Adds `extra` to the event of each asset in `outlets`, and stores the checkpoint in the state of each asset.

    Calls `warn` for each asset that cannot be updated. The training has succeeded, so the task must not fail.
    """
    for outlet in outlets:
        if not isinstance(outlet, Asset):
            continue
        try:
            context["outlet_events"][outlet].extra.update(extra)
            if CHECKPOINT in extra:
                context["asset_state_store"][outlet].set(CHECKPOINT, extra[CHECKPOINT])
        except Exception as error:  # noqa: BLE001 - a retry would repeat the training
            warn(f"asset {outlet.name} cannot be updated with the result of the run: {error_text(error)}")


def start_warm(context: Context, asset: Asset) -> dict[str, str]:
    """Returns the environment variables of a warm start, and stores the checkpoint for `resume_warm`.

    Raises AirflowFailException if the asset is not an inlet of the task.
    """
    set_forever(context["task_state_store"], _KEY, latest_checkpoint(context, asset) or "")
    return resume_warm(context)


def resume_warm(context: Context) -> dict[str, str]:
    """Returns the environment variables of a warm start. The start uses the checkpoint that `start_warm` stored."""
    checkpoint = context["task_state_store"].get(_KEY)
    return {WARM_START: str(checkpoint)} if checkpoint else {}


def warm_start_note(environment: Mapping[str, str], asset: Asset | None) -> str:
    """Returns the line of the task log about the checkpoint of a warm start. Empty if there is no checkpoint."""
    if asset is None or WARM_START not in environment:
        return ""
    return f"warm start from checkpoint {environment[WARM_START]} of asset {asset.name}"


def latest_checkpoint(context: Context, asset: Asset) -> str | None:
    """Returns the latest checkpoint of an asset, or None if the asset has no checkpoint.

    The function searches the events of the asset, beginning with the latest event. If no event contains a checkpoint,
    the function returns the checkpoint in the state of the asset. The state may contain a checkpoint that no event
    contains, because `airflow db clean` deletes events but not states.

    Raises AirflowFailException if the asset is not an inlet of the task.
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
