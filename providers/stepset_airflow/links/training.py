"""The links of a task instance in Airflow's UI: the training's page, and URLs of the configuration.

Airflow calls `get_link` in the worker when a task ends or is deferred, and stores the result.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

from stepset_airflow.airflow_internals import loop_region_of, plugin_tab_path
from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from stepset.run_status import Failure

TASK_ROUTE = "stepset-training"
"""Last part of the URL of the tab on a task instance's page."""


class TrainingLink(BaseOperatorLink):
    """The page "Training" of this task instance."""

    name = "Training"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        index, region = map_index_of(ti_key), loop_region_of(ti_key)
        return base + plugin_tab_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, index, TASK_ROUTE, region)


@dataclass(frozen=True)
class LinkFields:
    """The fields of a run that are filled into configured URLs.

    `pod` and `rank` are those of the first failure; empty if there is none.
    """

    namespace: str
    run: str
    target: str
    pod: str = ""
    rank: str = ""

    def with_failure(self, failure: Failure) -> LinkFields:
        return replace(self, pod=failure.pod, rank="" if failure.rank is None else str(failure.rank))


class WorkloadLink(BaseOperatorLink):
    """The run's workload in the dashboard of `[stepset] run_url`."""

    name = "Workload"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Returns the URL; empty if none is configured."""
        return _configured_url("run_url", getattr(operator, "link_fields", None))


class FailedRankLink(BaseOperatorLink):
    """The log of the rank that failed first, in the log store that `[stepset] logs_url` names."""

    name = "Log of the failed rank"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Returns the URL; empty if no pod has failed, or no URL is configured."""
        fields = getattr(operator, "link_fields", None)
        return _configured_url("logs_url", fields) if fields is not None and fields.pod else ""


LINKS = (TrainingLink(), WorkloadLink(), FailedRankLink())
"""The operator's links."""


def links_of(operator: BaseOperator, ti_key: Any) -> dict[str, str]:
    """Returns XCom key -> URL of all links whose URL is not empty."""
    return {link.xcom_key: url for link in LINKS if (url := link.get_link(operator, ti_key=ti_key))}


def _configured_url(option: str, fields: LinkFields | None) -> str:
    """Returns a configured URL with `{namespace}`, `{run}`, `{target}`, `{pod}` and `{rank}` filled in."""
    template = str(conf.get("stepset", option, fallback="") or "")
    if not template or fields is None:
        return ""
    for name, value in asdict(fields).items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template
