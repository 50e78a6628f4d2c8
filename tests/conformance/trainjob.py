"""Converts a TrainJob and its runtime, from a row of the reference data, into a job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.pods import Row

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
# What a TorchTune runtime passes on from its own command (trainer v2.3.0 pkg/constants, TorchTuneImmutableConfigs).
# A job file has no runtime, so these are its first args.
_RUNTIME_OVERRIDES = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")


def job_of(row: Row) -> dict[str, Any]:
    """Returns the job file that is equivalent to the row's TrainJob and runtime together."""
    given, kind = row["input"], row["input"]["framework"]
    runtime = given.get("runtime") or {}
    container = _container(runtime, "launcher" if kind == "mpi" else "node")
    job: dict[str, Any] = {
        "name": name_of(row),
        "framework": _framework(given, runtime),
        "num_nodes": _num_nodes(given, runtime),
        "procs_per_node": _procs_per_node(given, runtime),
        "command": given.get("command") or container.get("command") or ["train"],
        "args": [*_runtime_overrides(given, container), *(given.get("args") or container.get("args") or ())],
        "env": {**{e["name"]: e["value"] for e in container.get("env", ())}, **given.get("env", {})},
        "roles": _roles(runtime),
        **_resources(given, runtime),
    }
    if kind == "xgboost":
        job["agent"] = True  # the reference starts one process per pod, and counts several workers
    if subdomain := ((runtime.get("jobSetSpec") or {}).get("network") or {}).get("subdomain"):
        job["network"] = {"subdomain": subdomain}
    return job


def name_of(row: Row) -> str:
    """The job's name; the reference's test tables use capitals, which no cluster accepts."""
    return str(row["input"].get("jobName", "job")).lower()


def model_of(runtime_ref: str) -> str:
    """Returns the TorchTune model of a runtime with the name `torchtune-<family>-<size>`."""
    _, family, size = runtime_ref.split("-")
    return f"{family.replace('.', '_')}/{size.upper()}"


def _replicated_jobs(runtime: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (runtime.get("jobSetSpec") or {}).get("replicatedJobs") or []


def _container(runtime: Mapping[str, Any], job_name: str) -> Mapping[str, Any]:
    for job in _replicated_jobs(runtime):
        if job["name"] == job_name:
            containers = job["template"]["spec"]["template"]["spec"]["containers"]
            return next((c for c in containers if c["name"] == "node"), {})
    return {}


def _framework(given: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    kind = given["framework"]
    if kind == "torchtune":
        return {"kind": "torchtune", "model": model_of(given["runtimeRef"])}
    if kind == "mpi":
        policy = _mpi_policy(runtime)
        options = {"implementation": policy.get("mpiImplementation", "OpenMPI").lower()}
        if "sshAuthMountPath" in policy:
            options["ssh_auth_mount_path"] = policy["sshAuthMountPath"]
        return {"kind": "mpi", "run_launcher_as_node": policy.get("runLauncherAsNode", False), **options}
    return {"kind": "plain" if kind == "plainml" else kind}


def _mpi_policy(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = (runtime.get("mlPolicy") or runtime.get("mlPolicySource") or {}).get("mpi") or {}
    return policy


def _num_nodes(given: Mapping[str, Any], runtime: Mapping[str, Any]) -> int:
    if "numNodes" in given:
        return int(given["numNodes"])
    if given["framework"] == "mpi":
        # The launcher is the reference's trainer there, so the runtime's numNodes is not the nodes' number.
        nodes = [j["template"]["spec"].get("parallelism", 1) for j in _replicated_jobs(runtime) if j["name"] == "node"]
        return int(sum(nodes)) + (1 if _mpi_policy(runtime).get("runLauncherAsNode") else 0)
    counts = [p["count"] for p in runtime.get("podSets") or () if p["name"] == "node"]
    return int((runtime.get("mlPolicy") or {}).get("numNodes") or sum(counts) or 1)


def _procs_per_node(given: Mapping[str, Any], runtime: Mapping[str, Any]) -> int | str:
    runtimes_own = _mpi_policy(runtime).get("numProcPerNode", 1)
    number = given.get("numProcPerNode") or (runtimes_own if runtimes_own > 1 else None)
    return "auto" if number is None else int(number)


def _resources(given: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the runtime's resources with the TrainJob's merged over them by stepset."""
    below = _container(runtime, "node").get("resources") or runtime.get("runtimeResources") or {}
    above = given.get("resourcesPerNode") or {}
    if not (below and above):
        return {"resources_per_node": below or above}
    template = {"spec": {"containers": [{"name": "node", "resources": above}]}}
    return {"resources_per_node": below, "pod_template": template}


def _runtime_overrides(given: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    if given["framework"] != "torchtune":
        return []
    return [word for word in container.get("command", ()) if word.split("=")[0] in _RUNTIME_OVERRIDES]


def _roles(runtime: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": job["name"],
            "before": True,
            "image": container.get("image", "initializer"),
            "env": {e["name"]: e["value"] for e in container.get("env", ())},
        }
        for job in _replicated_jobs(runtime)
        if job["name"].endswith("-initializer")
        for container in job["template"]["spec"]["template"]["spec"]["containers"]
    ]
