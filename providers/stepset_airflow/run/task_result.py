"""Passes the result of a run that succeeded to Airflow: as the XCom of the task, and to the assets.

Airflow stores the XCom after `execute` has returned. If Airflow cannot store the XCom, for example because of the XCom
backend of the deployment, Airflow fails the task, and a retry may repeat the training. Therefore this module stores the
XCom before `execute` returns. Airflow then replaces the XCom by the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseXCom

from stepset_airflow.run.training_task import TrainingTask
from stepset_airflow.transferable import error_text, transferable

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from stepset.run_status import RunStatus


def task_result(task: TrainingTask, context: Context, status: RunStatus) -> Any:
    """Returns the XCom of the task of a run that succeeded, and adds the result to the outlets' asset events.

    If the result or an asset cannot be stored, the task log contains a warning, because the training has succeeded.
    """
    task.report_to_assets(context, status)
    result = result_of(task, status)
    if why := _xcom_problem(task, context["ti"], result):
        task.log.warning(f"the result of the run cannot be stored as an XCom, so the task has no XCom: {why}")
        return None
    return result


def result_of(task: BaseOperator, status: RunStatus) -> Any:
    """Returns the result of a run that succeeded, as Airflow can store it. Logs a note if there is no result."""
    if status.result is None and task.do_xcom_push:
        task.log.info("no result: rank 0 wrote none to $STEPSET_RESULT_FILE, or its function returned None")
    return transferable(status.result)


def _xcom_problem(task: TrainingTask, ti: Any, result: Any) -> str:
    """Returns why Airflow cannot store a result as an XCom, or "" if there is no problem."""
    if result is None or not task.do_xcom_push:
        return ""
    if task.multiple_outputs and not isinstance(result, Mapping):
        return f"multiple_outputs requires a mapping, and the result is {type(result).__name__}"
    try:
        if task.multiple_outputs:
            for key, value in result.items():
                ti.xcom_push(key, value)
        ti.xcom_push(BaseXCom.XCOM_RETURN_KEY, result)
    except Exception as error:  # noqa: BLE001 - the error of an XCom backend or of Airflow's API server
        return error_text(error)
    return ""
