"""Where a task instance's page in Airflow's UI leads to: the training, and what the site has set up for its runs.

Airflow asks for them in the worker when a task ends or is deferred, and keeps what it is told.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

from stepset_airflow.identity import map_index_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from stepset.watch.state import Failure

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
        index = map_index_of(ti_key)
        mapped = f"/mapped/{index}" if index >= 0 else ""
        dag, run, task = (quote(str(each), safe="") for each in (ti_key.dag_id, ti_key.run_id, ti_key.task_id))
        return f"{base}/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/{TASK_ROUTE}"


@dataclass(frozen=True)
class Place:
    """Where the run of a task is, as addresses of a site's own pages need it.

    Args:
        namespace, run, target: of the workload.
        pod, rank: who failed first; empty where nobody did.
    """

    namespace: str
    run: str
    target: str
    pod: str = ""
    rank: str = ""

    def failed(self, failure: Failure) -> Place:
        """The same, and who failed first."""
        return replace(self, pod=failure.pod, rank="" if failure.rank is None else str(failure.rank))


class WorkloadLink(BaseOperatorLink):
    """The run's object on the cluster, in the dashboard that `[stepset] run_url` names."""

    name = "Workload"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The dashboard's address; empty where there is none."""
        return _filled("run_url", getattr(operator, "place", None))


class FailedRankLink(BaseOperatorLink):
    """The log of the rank that failed first, where `[stepset] logs_url` says that logs are kept."""

    name = "Log of the failed rank"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The log's address; empty where no rank has failed, or nobody keeps logs."""
        place = getattr(operator, "place", None)
        return _filled("logs_url", place) if place is not None and place.pod else ""


LINKS = (TrainingLink(), WorkloadLink(), FailedRankLink())
"""Of the operator."""


def links_of(operator: BaseOperator, ti_key: Any) -> dict[str, str]:
    """The XCom keys of all links, and where they lead to now; those that lead nowhere are left out.

    Args:
        operator: the task.
        ti_key: the task instance's.
    """
    return {link.xcom_key: url for link in LINKS if (url := link.get_link(operator, ti_key=ti_key))}


def _filled(option: str, place: Place | None) -> str:
    """An address of the configuration with `{namespace}`, `{run}`, `{target}`, `{pod}` and `{rank}` filled in."""
    template = str(conf.get("stepset", option, fallback="") or "")
    if not template or place is None:
        return ""
    for name, value in asdict(place).items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template
