"""The plugin of the page "Training" in Airflow's UI, which every Airflow process loads through its entry point.

The page's application is imported only when an API server requests it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from stepset_airflow.links.training import TASK_ROUTE

MOUNT = "/stepset"
_PAGE = f"{MOUNT[1:]}/training"  # relative to the UI's <base>, because Airflow may be served below a path
_TASK = "dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"
_ICON = f"{MOUNT[1:]}/static/icon.svg"


class StepsetPlugin(AirflowPlugin):
    """Adds recent trainings to the navigation, and a tab with the task's training to a task instance's page."""

    name = "stepset"
    external_views: list[Any] = [  # noqa: RUF012  # Airflow's declaration
        {
            "name": "Training",
            "href": _PAGE,
            "destination": "nav",
            "category": "browse",
            "url_route": "stepset-trainings",
            "icon": _ICON,
        },
        {"name": "Training", "href": f"{_PAGE}?{_TASK}", "destination": "task_instance", "url_route": TASK_ROUTE},
    ]

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]  # Airflow only reads it from an instance
        """The application, mounted at /stepset of the API server."""
        from stepset_airflow.page.app import make_app

        return [{"app": make_app(), "url_prefix": MOUNT, "name": "stepset"}]
