"""Where a task instance's page in Airflow's UI leads to: the training, and what the site has set up for its runs.

Airflow asks for them in the worker when a task ends or is deferred, and keeps what it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

TASK_ROUTE = "stepset-training"
"""Of the tab at a task instance's page."""


class TrainingLink(BaseOperatorLink):
    """The page "Training" of this task instance."""

    name = "Training"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The tab's address.

        Args:
            operator: the task.
            ti_key: the task instance's.
        """
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        index = -1 if ti_key.map_index is None else ti_key.map_index
        mapped = f"/mapped/{index}" if index >= 0 else ""
        dag, run, task = (quote(str(each), safe="") for each in (ti_key.dag_id, ti_key.run_id, ti_key.task_id))
        return f"{base}/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/{TASK_ROUTE}"


LINKS = (TrainingLink(),)
"""Of the operator."""


def links_of(operator: BaseOperator, ti_key: Any) -> dict[str, str]:
    """The XCom keys of all links, and where they lead to now.

    Args:
        operator: the task.
        ti_key: the task instance's.
    """
    return {link.xcom_key: url for link in LINKS if (url := link.get_link(operator, ti_key=ti_key))}
