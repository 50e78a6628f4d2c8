"""Notes before a run on a cluster: a checkpoint_dir that no volume holds, and secrets in the job itself."""

import pytest

from stepset.spec import parse_job
from stepset.targets.notes import cluster_notes

CLAIM = {"name": "own", "persistentVolumeClaim": {"claimName": "checkpoints"}}


def template(volume: dict) -> dict:
    mounts = [{"name": "own", "mountPath": "/ckpt"}]
    return {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": mounts}]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"storage": [{"path": "/data", "claim": "c"}]},
        {"storage": [{"path": "/ckp", "claim": "c"}]},
        {"storage": [{"path": "/ckpt/digits/old", "claim": "c"}]},
        {"storage": [{"path": "/ckpt", "claim": "c", "read_only": True}]},
        {"pod_template": template({"name": "own", "emptyDir": {}})},
        {"pod_template": template({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}})},
    ],
)
def test_checkpoints_that_are_lost_with_a_pod_are_noted(fields: dict) -> None:
    assert cluster_notes(parse_job({"script": "train.py", "checkpoint_dir": "/ckpt/digits", **fields})) == (
        "checkpoint_dir: /ckpt/digits is not on a writable volume that outlives the pods, so the checkpoints are lost"
        " when a pod is replaced; add storage: [{path: /ckpt/digits, claim: NAME}]",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint_dir": None},
        {"storage": [{"path": "/ckpt/", "claim": "c"}]},
        {"storage": [{"path": "/ckpt/digits", "claim": "c"}]},
        {"pod_template": template(CLAIM)},
        {"pod_template": template({"name": "own", "hostPath": {"path": "/shared"}})},
    ],
)
def test_checkpoints_on_a_volume_are_not_noted(fields: dict) -> None:
    assert cluster_notes(parse_job({"script": "train.py", "checkpoint_dir": "/ckpt/digits", **fields})) == ()


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password", "TOKEN"])
def test_a_secret_in_the_job_itself_is_noted_without_its_value(name: str) -> None:
    (note,) = cluster_notes(parse_job({"script": "train.py", "env": {name: "hunter2"}}))
    assert note == (
        f"env.{name}: everyone who can read the pods of the run can read this value; store it in a Secret, and write"
        " {secret: NAME, key: KEY}"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN_PATH", "/run/token"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("HF_TOKEN", {"secret": "hf", "key": "token"}),
        ("HF_TOKEN", ""),
        ("MONKEY", "x"),
    ],
)
def test_other_variables_have_no_note(name: str, value: object) -> None:
    assert cluster_notes(parse_job({"script": "train.py", "env": {name: value}})) == ()
