"""Who may see what: the page's data are for whoever may read the task instance they are of."""

from __future__ import annotations

import pytest

from tests.airflow.page.server import Server
from tests.airflow.page.training import Training

pytestmark = [pytest.mark.airflow, pytest.mark.local]

PATHS = ("/stepset/training", "/stepset/static/training.js", "/stepset/api/runs")


def test_the_data_are_read_by_those_who_may_and_by_nobody_else(server: Server, training: Training) -> None:
    path = training.data
    for user, status in ((None, 401), ("bert", 403), ("vera", 200), ("ada", 200)):
        answer = server.get(path, user)
        assert answer.status_code == status, (user, answer.text)
        assert ("train-" in answer.text) == (status == 200)

    def listed(user: str) -> bool:
        return training.dag_id in server.get("/stepset/api/runs", user).text

    assert (listed("vera"), listed("ada"), listed("bert")) == (True, True, False)

    for wrong in (path.replace("/train", "/other"), f"{path}?map_index=7", path.replace(training.dag_id, "~")):
        assert server.get(wrong, "ada").status_code == 404
    assert server.get(f"{path}?map_index=-2", "ada").status_code == 422
    # Nobody gets past the check by naming a DAG of his own besides.
    assert server.get(f"{path}?dag_id=mine", "bert").status_code == 403


@pytest.mark.parametrize("path", PATHS)
def test_nobody_who_has_not_logged_in_sees_anything(server: Server, path: str) -> None:
    assert server.get(path).status_code == 401
    assert server.get(path, "bert").status_code == 200


@pytest.mark.parametrize("name", ["app.py", "..%2Fapp.py", "%2e%2e/app.py", "__init__.py"])
def test_only_files_of_the_page_are_served(server: Server, name: str) -> None:
    assert server.get(f"/stepset/static/{name}", "ada").status_code == 404


def test_the_page_runs_nothing_but_its_own_script(server: Server) -> None:
    policy = server.get("/stepset/training", "ada").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_airflow_has_the_page_in_its_navigation_and_at_task_instances(server: Server) -> None:
    plugins = server.get("/api/v2/plugins", "ada").json()["plugins"]
    (ours,) = (each for each in plugins if each["name"] == "stepset")
    assert {view["destination"] for view in ours["external_views"]} == {"nav", "task_instance"}
    errors = server.get("/api/v2/plugins/importErrors", "ada").json()["import_errors"]
    assert [each for each in errors if "stepset" in each["source"]] == []
