"""Generated jobs for the tests that compare stepset with the real API server, kubelet and controllers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.spec import parse_job
from stepset.targets.request import RenderRequest
from tests.cluster.odd_jobs import odd_job_files
from tests.strategies import JobFile, job_files
from tests.targets.environments import environments

_NODE = "node"
_PROBE = {"exec": {"command": ["x"]}}
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}},
}
_OF_NODE: list[JobFile] = [
    {
        "env": [
            {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "LR", "value": "$(CPUS)-$(STEPSET_JOB)"},
        ]
    },
    {"ports": [{"containerPort": 29500}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]},
    {"env": [{"name": "PET_NNODES", "value": "9"}, {"name": "LR", "value": "9"}]},
    {"env": [{"name": name, "value": "9"} for name in ("OMPI_MCA_plm_rsh_args", "JAX_PROCESS_ID", "DMLC_TASK_ID")]},
    {"command": ["a"], "args": ["$(STEPSET_JOB)"], "image": "registry.example/other:1"},
    {"livenessProbe": _PROBE, "lifecycle": {"preStop": _PROBE}},
    {"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1500m"}}},
]
_POD_TEMPLATES: list[JobFile] = [
    *({"containers": [{"name": _NODE, **each}]} for each in _OF_NODE),
    {"initContainers": [{"name": "first", "image": "x", "ports": [{"containerPort": 5}, {"containerPort": 6}]}]},
    {
        "metadata": {"labels": {"x": "y"}, "annotations": {"n": "two\nlines: [yes]"}},
        "spec": {"hostNetwork": True, "schedulerName": "s", "topologySpreadConstraints": [_SPREAD]},
    },
]
_WORDS = [
    "$(A)$$(B)$(PET_NNODES)",
    "y",
    "1e3",
    "08",
    "0o17",
    "null",
    "~",
    "- a",
    "a: b",
    "\u2028z",
    "\ttab",
    "  lead ",
    "a\x85",
]


def unusual_job_files() -> st.SearchStrategy[JobFile]:
    """A valid job file, some with unusual variables, words and pod templates; some with values that may be invalid."""
    return st.one_of(job_files().flatmap(_changed), job_files(), odd_job_files())


def _changed(file: JobFile) -> st.SearchStrategy[JobFile]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "env": environments().map(lambda env: {**file.get("env", {}), **env}),
        "pod_template": st.sampled_from(_POD_TEMPLATES),
        "agent": st.booleans(),
        "args": st.lists(st.sampled_from(_WORDS), max_size=5),
    }
    return st.fixed_dictionaries({}, optional=optional).map(lambda fields: {**file, **fields})


def request_of(file: JobFile, namespace: str, run: str) -> RenderRequest | None:
    """Returns a request for the job, with an image because pods need one; None if stepset refuses the job."""
    try:
        job = parse_job({"image": "registry.example/train:1", **file})
        script = b"print()\n" if job.script is not None and job.code is None else None
        sources = Sources(Path("/x"), Path("/x"), script, b"packed" if job.code is not None else None)
        return make_request(job, sources, run=run, namespace=namespace)
    except BadInputError as error:
        assert error.problems and not any("\n" in line for line in error.problems)
        return None
