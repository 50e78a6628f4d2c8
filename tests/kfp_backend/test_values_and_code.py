"""Values, code and results arrive unchanged on the real backend."""

# KFP evaluates annotations: no `from __future__ import annotations`.
import hashlib
import json
import os
from typing import Any

import pytest
from kfp import dsl
from tools.kfp_backend.layout import ACCESS_KEY, BUCKET, SECRET_KEY
from tools.kfp_backend.services import STORAGE_URL

from stepset_kfp import distributed_train
from stepset_kfp.encoding import as_text
from tests.kfp.hard_values import HARD
from tests.kfp_backend.backend import Backend

pytestmark = pytest.mark.cluster

# Writes what has arrived; the result contains the arguments, too, if the first one is `echo`.
WRITES = """\
import json, os, pathlib, sys
values = {"args": sys.argv[1:], **{name: os.environ[name] for name in ("A", "B") if name in os.environ}}
home = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
home.mkdir(parents=True, exist_ok=True)
(home / "values.json").write_text(json.dumps(values))
result = values if sys.argv[1:2] == ["echo"] else {}
pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))
"""
HASHES = """\
import hashlib, json, os, pathlib
data = pathlib.Path("weights.bin").read_bytes()
home = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
home.mkdir(parents=True, exist_ok=True)
(home / "digest").write_text(hashlib.sha256(data).hexdigest())
"""
RUNTIME = 'a "quoted" \\ backslash\nnewline\ttab \' é \u200b\u2028 $value {single}'
"""A run-time value. Argo replaces its own variables there, and KFP's database connection refuses characters above
U+FFFF (docs/design/kfp-inputs.md, "Not solved")."""


def values_of(backend: Backend, name: str) -> Any:
    return json.loads((backend.shared / name / "values.json").read_text(encoding="utf-8"))


def test_hard_values_arrive_unchanged_as_constants_parameters_and_results(backend: Backend) -> None:
    (backend.shared / "train.py").write_text(WRITES)
    settings = {"num_nodes": 1, **backend.settings()}
    given_env = settings.pop("env")

    @dsl.pipeline(name="hard-values")
    def pipeline(text: str, many: list, some: dict):
        distributed_train(
            **settings,
            name="constants",
            checkpoint_dir=f"{backend.shared}/constants",
            args=HARD,
            env={**given_env, "A": "".join(HARD), "B": "{{workflow.name}}"},
        )
        first = distributed_train(
            **settings,
            name="parameters",
            checkpoint_dir=f"{backend.shared}/parameters",
            args=["echo", text, f"--x={text}", many],
            env={**given_env, "A": some, "B": text},
        )
        distributed_train(
            **settings,
            name="results",
            checkpoint_dir=f"{backend.shared}/results",
            args=["end", first.outputs["result"]],
            env=given_env,
        )

    many, some = [RUNTIME, 1, 'b"'], {"k\\": RUNTIME, "é": [True, None]}
    run = backend.submit(pipeline, text=RUNTIME, many=many, some=some)
    assert backend.wait(run) == "SUCCEEDED", backend.describe(run)
    assert values_of(backend, "constants") == {"args": HARD, "A": "".join(HARD), "B": "{{workflow.name}}"}
    arrived = values_of(backend, "parameters")
    assert arrived["args"] == ["echo", RUNTIME, f"--x={RUNTIME}", as_text(many)]
    assert json.loads(arrived["A"]) == some
    assert arrived["B"] == RUNTIME
    assert json.loads(values_of(backend, "results")["args"][1]) == arrived


def test_two_steps_with_200_kilobytes_of_code_each(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes, which cannot be compressed: inputs of this size exceed what Argo stores."""
    monkeypatch.setenv("STEPSET_KFP_CODE_STORE", f"minio://{BUCKET}/stepset-code")
    monkeypatch.setenv("AWS_ENDPOINT_URL", STORAGE_URL)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    digests = {}
    for name in ("a", "b"):
        (backend.shared / name).mkdir()
        (backend.shared / name / "train.py").write_text(HASHES)
        content = os.urandom(200_000)
        (backend.shared / name / "weights.bin").write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()

    @dsl.pipeline(name="large-code")
    def pipeline():
        for name in digests:
            distributed_train(
                **{"num_nodes": 1, **backend.settings()}, code=name, checkpoint_dir=f"{backend.shared}/{name}-found"
            )

    run = backend.submit(pipeline)
    assert backend.wait(run) == "SUCCEEDED", backend.describe(run)
    found = {name: (backend.shared / f"{name}-found/digest").read_text() for name in digests}
    assert found == digests
