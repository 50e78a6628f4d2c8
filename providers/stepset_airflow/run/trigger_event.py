"""Reads the event with which a trigger ends the deferral of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from stepset.run_status import RunStatus


def reported_status(event: Mapping[str, Any]) -> RunStatus:
    """Returns the run status that a trigger's event contains.

    Raises:
        AirflowException: the trigger could not follow the run, or the event contains no valid status.
    """
    from stepset.printable import printable_text
    from stepset.run_status import RunStatus

    if "error" in event:
        raise AirflowException(printable_text(str(event["error"])))
    try:
        return RunStatus.from_dict(event.get("status"))
    except ValueError as error:
        raise AirflowException(f"the trigger's event is invalid: {printable_text(str(error))}") from error
