"""The plugin that adds the page "Training" to Airflow's UI.

Every Airflow process imports this module through the entry point of the plugin. The application that serves the page
is imported only in an API server.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from stepset_airflow.links.training import TASK_ROUTE

MOUNT = "/stepset"
_PAGE = f"{MOUNT[1:]}/training"  # relative to the UI's <base>, because the URL of the UI may contain a path
_TASK = "dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"
_ICON = f"{MOUNT[1:]}/static/icon.svg"


class StepsetPlugin(AirflowPlugin):
    """Adds two pages to Airflow's UI.

    The navigation gets a link to the list of runs. The page of each task instance gets a tab for the run of the task.
    """

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
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]  # Airflow reads this attribute from an instance
        """The application of the page. Airflow mounts the application at /stepset of the API server."""
        from stepset_airflow.page.app import make_app

        return [{"app": make_app(), "url_prefix": MOUNT, "name": "stepset"}]
