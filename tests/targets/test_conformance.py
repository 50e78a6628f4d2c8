"""A JobSet of stepset contains what Kubeflow Trainer v2.3.0 puts into its JobSet, with the defects fixed.

data/objects.json states, for rows of the conformance data, which objects the reference creates: numbers of pods,
ports, volumes, order, ConfigMap, Secret, PodGroup, and the answer of JobSet's webhook. tests/conformance compares
variables, commands and hostfiles.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepset.frameworks import make_plan
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.spec import parse_job
from stepset.targets.kinds import jobset
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.validation.preflight import problems
from tests.conformance.pods import load_rows
from tests.conformance.trainjob import job_of, name_of
from tests.targets.making import Manifest, container, of_kind, pod, replicated_job

ROWS, _ = load_rows("trainer.json")
EXPECTED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "objects.json").read_text("utf-8"))

# Rows that are rejected before they are rendered; tests/conformance asserts that.
REFUSED = (
    "exec/shipped torchtune-llama3.2-3b: 2 gpu qlora rejected on 3B",
    "exec/shipped torchtune-qwen2.5-1.5b: 1 gpu qlora rejected on qwen",
)
# Row -> the sizes of stepset's PodGroup: a launcher that waits for its nodes is not counted with them, and limits
# count as requests, as for the API server.
DIFFERENT_POD_GROUPS = {
    "exec/coscheduling: mpi launcher dependsOn node Ready counts launcher in minMember (deadlock risk)": {
        "minMember": 2
    },
    "exec/coscheduling: limits only count as no requests": {
        "minMember": 4,
        "minResources": {"cpu": "8", "nvidia.com/gpu": "32"},
    },
}
# The reference replaces 8080 with its own port, because both have no name.
DIFFERENT_PORTS = {"exec/torch: unnamed runtime port is clobbered (upstream quirk)": {8080, 29500}}


def _too_long(row: dict[str, Any]) -> bool:
    return bool((row["expect"].get("jobSetAdmission") or {}).get("admissionError"))


RENDERED = [row for row in EXPECTED if row["name"] not in REFUSED and not _too_long(row)]


def _params(*rows: dict[str, Any]) -> list[Any]:
    return [pytest.param(row, id=row["name"].removeprefix("go/").removeprefix("exec/")) for row in rows]


def _pod_template(row: dict[str, Any]) -> Manifest:
    """Returns the node's pod of the row's runtime and patches as a job's pod_template."""
    given = row.get("given", {})
    template: Manifest = {}
    if "ports" in given:
        template = {"spec": {"containers": [{"name": "node", "ports": given["ports"]}]}}
    for patch in given.get("runtimePatches", ()):
        for job in _patched_jobs(patch):
            if job["name"] == "node":
                template = merge(template, {"spec": job["template"]["spec"].get("template", {}).get("spec", {})})
    return template


def _patched_jobs(patch: Manifest) -> list[Manifest]:
    spec = patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {})
    jobs: list[Manifest] = spec.get("replicatedJobs", [])
    return jobs


def _patched_metadata(row: dict[str, Any], field: str) -> dict[str, str]:
    found: dict[str, str] = dict(row.get("given", {}).get("templateMetadata", {}).get(field, {}))
    for patch in row.get("given", {}).get("runtimePatches", ()):
        found |= patch.get("trainingRuntimeSpec", {}).get("template", {}).get("metadata", {}).get(field, {})
    return found


def _job(row: dict[str, Any]) -> dict[str, Any]:
    job = job_of(ROWS[row["name"]])
    policy = row.get("given", {}).get("podGroupPolicy", {})
    gang = {"gang": next(iter(policy))} if policy else {}
    annotations = _patched_metadata(row, "annotations")
    if queue := annotations.pop("scheduling.volcano.sh/queue-name", None):
        gang["queue_name"] = queue
    return {
        **job,
        "pod_template": merge(_pod_template(row), job.get("pod_template", {})),
        "scheduling": gang,
        "labels": _patched_metadata(row, "labels"),
        "annotations": annotations,
        "env": {name: {"value": value, "override": True} for name, value in job["env"].items()},
    }


def _render(row: dict[str, Any]) -> list[Manifest]:
    return _rendered(row["name"])


@cache
def _rendered(name: str) -> list[Manifest]:
    row = next(row for row in EXPECTED if row["name"] == name)
    sources = Sources(Path("/nowhere"), Path("/nowhere"))
    return jobset.render(make_request(parse_job(_job(row)), sources))


def _as_text(amounts: Manifest) -> Manifest:
    return {kind: {name: str(value) for name, value in row.items()} for kind, row in amounts.items()}


def _modes(volume: Any) -> Any:
    """File modes as numbers; the data has them as octal text."""
    if isinstance(volume, dict):
        return {
            key: int(value, 8) if key in ("mode", "defaultMode") else _modes(value) for key, value in volume.items()
        }
    return [_modes(each) for each in volume] if isinstance(volume, list) else volume


def test_every_row_is_asserted() -> None:
    names = {row["name"] for row in EXPECTED}
    assert names <= ROWS.keys()
    assert {*REFUSED, *DIFFERENT_POD_GROUPS, *DIFFERENT_PORTS} <= names
    assert len(RENDERED) + len(REFUSED) + sum(map(_too_long, EXPECTED)) == len(EXPECTED) > 100


@pytest.mark.parametrize("row", _params(*RENDERED))
def test_each_group_has_the_references_pods_in_the_references_order(row: dict[str, Any]) -> None:
    objects = _render(row)
    for name, expected in row["expect"]["replicatedJobs"].items():
        if name in ("worker", "nope"):  # of a second replicated job of the runtime, and of a patch for a missing one
            continue
        ours = replicated_job(objects, name)
        spec = ours["template"]["spec"]
        assert ours["replicas"] == (expected.get("replicas") or 1)
        assert spec["parallelism"] == spec["completions"] == (expected.get("parallelism") or 1)
        if "dependsOn" in expected:
            assert {(d["name"], d["status"]) for d in expected["dependsOn"]} <= {
                (d["name"], d["status"]) for d in ours["dependsOn"]
            }
    if row["expect"]["replicatedJobs"].get("node", {}).get("ancestor") == "trainer":
        labels = replicated_job(objects)["template"]["metadata"]["labels"]
        assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"


@pytest.mark.parametrize("row", _params(*(r for r in RENDERED if "ports" in r["expect"])))
def test_the_training_container_opens_the_references_ports_and_keeps_its_own(row: dict[str, Any]) -> None:
    ports = container(_render(row))["ports"]
    expected = DIFFERENT_PORTS.get(row["name"]) or {port["containerPort"] for port in row["expect"]["ports"]}
    assert {port["containerPort"] for port in ports} == expected
    named = {port["containerPort"]: port["name"] for port in row.get("given", {}).get("ports", ()) if "name" in port}
    assert {port["containerPort"]: port["name"] for port in ports if "name" in port} == named


def _used_without_agent(volume: dict[str, Any], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Adds what the reference does not have if ssh uses the mounted keys (docs/design/README.md)."""
    if "secret" not in volume:
        return volume
    known_hosts = {"key": "ssh-known-hosts", "path": "known_hosts", "mode": 0o644}
    private, *public = volume["secret"]["items"]
    if {"name": volume["name"], "mountPath": "/root/.ssh"} in mounts:
        private = {**private, "mode": 0o600}
    return {**volume, "secret": {**volume["secret"], "items": [private, *public, known_hosts]}}


@pytest.mark.parametrize("row", _params(*(r for r in RENDERED if "configMap" in r["expect"])))
def test_mpi_jobs_have_the_references_hostfile_secret_and_mounts(row: dict[str, Any]) -> None:
    objects = _render(row)
    expected = row["expect"]
    found = {each["metadata"]["name"]: each for each in objects}
    name = expected["configMap"]["name"]
    if "Intel" not in row["name"]:  # the reference has an empty hostfile there
        assert found[name]["data"] == expected["configMap"]["data"]
    secret = found[expected["secret"]["name"]]
    assert (secret["type"], secret["immutable"]) == (expected["secret"]["type"], expected["secret"]["immutable"])
    assert list(secret["stringData"]) == [*expected["secret"]["keys"], "ssh-known-hosts"]
    for group in ("node", "launcher"):
        theirs = expected["replicatedJobs"].get(group, {})
        volumes = pod(objects, group)["spec"]["volumes"]
        mounts = container(objects, group)["volumeMounts"]
        agent = any(volume["name"] == "stepset-agent" for volume in volumes)
        for volume in theirs.get("volumes", ()):
            if volume["name"].startswith("mpi-"):
                assert (_modes(volume) if agent else _used_without_agent(_modes(volume), mounts)) in volumes
        for mount in theirs.get("containers", {}).get("node", {}).get("volumeMounts", ()):
            if mount["name"].startswith("mpi-"):
                assert mount in mounts


@pytest.mark.parametrize("row", _params(*(r for r in RENDERED if "podGroup" in r["expect"])))
def test_a_pod_group_counts_the_references_pods_that_start_at_once(row: dict[str, Any]) -> None:
    objects = _render(row)
    ours, theirs = of_kind(objects, "PodGroup"), row["expect"]["podGroup"]
    assert (ours["apiVersion"], ours["metadata"]["name"]) == (theirs["apiVersion"], theirs["name"])
    wanted = {**theirs["spec"], **DIFFERENT_POD_GROUPS.get(row["name"], {})}
    # stepset sets the time for which a partly scheduled gang waits; there is no field for it.
    assert {k: v for k, v in ours["spec"].items() if k != "scheduleTimeoutSeconds"} == {
        k: v for k, v in wanted.items() if k != "scheduleTimeoutSeconds"
    }
    metadata = row["expect"]["replicatedJobs"]["node"]["podMetadata"]
    for field, values in metadata.items():
        assert values.items() <= pod(objects)["metadata"][field].items()


@pytest.mark.parametrize("row", _params(*(r for r in RENDERED if "runtimePatches" in r.get("given", {}))))
def test_a_pod_template_can_set_what_the_reference_patches(row: dict[str, Any]) -> None:
    objects = _render(row)
    assert _patched_metadata(row, "labels").items() <= of_kind(objects, "JobSet")["metadata"]["labels"].items()
    if not any(job["name"] == "node" for p in row["given"]["runtimePatches"] for job in _patched_jobs(p)):
        return
    expected = row["expect"]["replicatedJobs"]["node"]
    spec = pod(objects)["spec"]
    for field, value in expected.get("podSpec", {}).items():
        if field != "initContainers":
            assert spec[field] == value
    patched = _pod_template(row)["spec"]
    for volume in expected.get("volumes", ()):
        if volume in patched.get("volumes", ()):
            assert volume in spec["volumes"]
    for name, theirs in expected.get("containers", {}).items():
        rows = [*spec["containers"], *spec.get("initContainers", ())]
        ours = next((each for each in rows if each["name"] == name), {})
        if any(each["name"] == name for each in patched.get("containers", ())) and "securityContext" in theirs:
            assert ours["securityContext"] == theirs["securityContext"]


_ADMITTED = [row for row in EXPECTED if "jobSetAdmission" in row["expect"] and row["name"] not in REFUSED]


@pytest.mark.parametrize("row", _params(*_ADMITTED))
def test_preflight_rejects_exactly_the_run_names_that_jobsets_webhook_rejects(row: dict[str, Any]) -> None:
    job = parse_job({**job_of(ROWS[row["name"]]), "name": "short", "image": "img", "env": {}})
    run = name_of(ROWS[row["name"]])
    lines = [line for line in problems(job, make_plan(job), "jobset", run) if line.startswith("the run's name: ")]
    assert bool(lines) == _too_long(row)


@pytest.mark.parametrize("row", _params(*(r for r in RENDERED if "jobSetAdmission" in r["expect"])))
def test_service_and_jobs_have_the_names_jobset_gives_the_references(row: dict[str, Any]) -> None:
    admission = row["expect"]["jobSetAdmission"]
    objects = _render(row)
    run, spec = of_kind(objects, "JobSet")["metadata"]["name"], of_kind(objects, "JobSet")["spec"]
    assert spec["network"]["subdomain"] == admission["subdomain"]
    names = {f"{run}-{each['name']}-0" for each in spec["replicatedJobs"]}
    assert {name for name in admission["jobNames"] if "-worker-" not in name and "-nope-" not in name} <= names
