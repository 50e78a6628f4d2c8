"""The links of a task instance in Airflow's UI.

The links lead to the page of the run, and to URLs in the configuration of Airflow. When a task ends or is deferred, the
worker calls `get_link` of each link and stores the returned URL.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink, conf

from stepset_airflow.airflow_internals import Region, loop_region_of
from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from stepset.run_status import Failure

TASK_ROUTE = "stepset-training"
"""The last part of the URL of the tab "Training". The tab is on the page of a task instance."""


class TrainingLink(BaseOperatorLink):
    """The link to the tab "Training" of the task instance."""

    name = "Training"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        index, region = map_index_of(ti_key), loop_region_of(ti_key)
        return base + plugin_tab_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, index, TASK_ROUTE, region)


def plugin_tab_path(
    dag_id: str, run_id: str, task_id: str, map_index: int, route: str, region: Region | None = None
) -> str:
    """Returns the path and query of the URL that opens a plugin's tab.

    The tab is on the page of a task instance in Airflow's UI. ui/src/router.tsx of airflow-core defines the paths. If
    the task instance is in a region, the query contains the region. The UI does not pass the region to the plugin's
    page. Therefore the page reads the region from the URL.

    Args:
        map_index: the map index of the task instance, or -1 if the task is not mapped.
        route: the `url_route` of the plugin's view.
    """
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    query = "" if region is None else "?" + urlencode({"region_id": region.id, "region_index": region.index})
    return f"/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/{route}{query}"


@dataclass(frozen=True)
class LinkFields:
    """The fields of a run that replace placeholders in configured URLs.

    `pod` and `rank` are the pod and the rank that failed first. If nothing failed, both are empty.
    """

    namespace: str
    run: str
    target: str
    pod: str = ""
    rank: str = ""

    def with_failure(self, failure: Failure) -> LinkFields:
        return replace(self, pod=failure.pod, rank="" if failure.rank is None else str(failure.rank))


class WorkloadLink(BaseOperatorLink):
    """The link to the workload of the run in a dashboard. The option `[stepset] run_url` contains the URL."""

    name = "Workload"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Returns the URL, or an empty string if no URL is configured."""
        return _configured_url("run_url", getattr(operator, "link_fields", None))


class FailedRankLink(BaseOperatorLink):
    """The link to the log of the rank that failed first. The option `[stepset] logs_url` contains the URL."""

    name = "Log of the failed rank"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Returns the URL, or an empty string if no pod has failed or no URL is configured."""
        fields = getattr(operator, "link_fields", None)
        return _configured_url("logs_url", fields) if fields is not None and fields.pod else ""


LINKS = (TrainingLink(), WorkloadLink(), FailedRankLink())
"""The operator's links."""


def links_of(operator: BaseOperator, ti_key: Any) -> dict[str, str]:
    """Returns a mapping from XCom keys to the URLs of the links. Links with an empty URL are not included."""
    return {link.xcom_key: url for link in LINKS if (url := link.get_link(operator, ti_key=ti_key))}


def _configured_url(option: str, fields: LinkFields | None) -> str:
    """Returns the URL in a configuration option, or an empty string if the option is not set.

    The function replaces `{namespace}`, `{run}`, `{target}`, `{pod}` and `{rank}` in the URL with the values of
    `fields`.
    """
    template = str(conf.get("stepset", option, fallback="") or "")
    if not template or fields is None:
        return ""
    for name, value in asdict(fields).items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template
