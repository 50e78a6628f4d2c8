"""Nothing that a real Airflow stores contains a secret: no table, no log of any process, no manifest."""

from __future__ import annotations

import base64
import json
import re

import pytest
from cryptography.fernet import Fernet

from tests.airflow.stack.airflow import Airflow
from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.training import WAITS, signal

pytestmark = [pytest.mark.airflow, pytest.mark.cluster, pytest.mark.stack]

_PLANTED = "planted-9f1c1b2e4d"


def decrypted(airflow: Airflow, text: str) -> str:
    """A database dump, followed by the decrypted values that it contains."""
    fernet = Fernet(airflow.env["AIRFLOW__CORE__FERNET_KEY"])
    encrypted = re.findall(r"gAAAAA[\w=-]+", text)
    return "\n".join([text, *(fernet.decrypt(each.encode()).decode() for each in encrypted)])


def test_no_secret_is_in_a_table_a_log_or_a_manifest(stage: Stage) -> None:
    runs = stage.tasks.runs
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": _PLANTED}}
    runs.cluster.apply(secret, runs.namespace)
    ways = {"sync": False, "deferred": True}
    env = {"TOKEN": {"secret": "hub", "key": "token"}}
    run = stage.run("\n".join(stage.train(task_id=each, env=env, deferrable=ways[each]) for each in ways), WAITS)
    for way in ways:
        run.task(way).wait_for_line("[rank 0] before 49")
    database = stage.airflow.database
    meanwhile = decrypted(stage.airflow, database.dump("--exclude-table=connection"))
    assert "stepset_airflow.triggers.distributed_train.DistributedTrainTrigger" in meanwhile
    names = [each["metadata"]["name"] for each in stage.tasks.workloads()]
    for name in names:
        signal(stage, "first", "second", run=name)
    for way in ways:
        assert run.task(way).wait()["state"] == "success", run.task(way).explained()
    afterwards = decrypted(stage.airflow, database.dump("--exclude-table=connection"))
    manifests = json.dumps([runs.get(kind) for kind in ("jobsets", "jobs", "pods", "configmaps", "events")])
    logs = "\n".join(path.read_text() for path in stage.airflow.home.rglob("*.log"))
    token = stage.tasks.token()
    # Both are found where they belong, so the search works.
    assert token in decrypted(stage.airflow, database.dump("--table=connection"))
    assert runs.get("secret/hub")["data"]["token"] == base64.b64encode(_PLANTED.encode()).decode()
    for place in (meanwhile, afterwards, manifests, logs):
        for name in names:
            assert name in place
        for hidden in (token, _PLANTED):
            assert hidden not in place
            assert base64.b64encode(hidden.encode()).decode() not in place
