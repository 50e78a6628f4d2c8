"""Starts and stops the processes of the backend.

The processes are a database, an S3 emulator, a metadata store, Argo's controller, KFP's API server and KFP's agent. All
processes run in the network namespace of the control plane. Therefore no process listens on an address of the host. All
processes run in the cgroup of the cluster. Therefore they are terminated when the cluster is stopped.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from tests.cluster.testbed import process
from tests.cluster.testbed.layout import CONTROL_ADDRESS, KUBECONFIG
from tests.cluster.testbed.network import CONTROL

from .images import pod_patch
from .layout import (
    ACCESS_KEY,
    ARGOEXEC_IMAGE,
    BUCKET,
    DATABASE_PORT,
    DRIVER_IMAGE,
    KFP_STATE,
    LAUNCHER_IMAGE,
    METADATA_PORT,
    NAMESPACE,
    SECRET_KEY,
    SERVICES_PYTHON,
    STORAGE_PORT,
    URL,
)
from .objects import CONTROLLER_MAP

DATABASE, STORAGE, METADATA, ARGO, API, AGENT = NAMES = (
    "kfp-database", "kfp-storage", "kfp-metadata", "kfp-argo", "kfp-api", "kfp-agent",
)  # fmt: skip
"""The processes in the order in which they start."""
STORAGE_URL = f"http://{CONTROL_ADDRESS}:{STORAGE_PORT}"
_TOKENS = "/run/secrets/kubeflow/tokens"
_TIMEOUT = 240


def start(build: Path) -> None:
    """Starts all processes.

    Args:
        build: the directory of programs and files that `build.ensure` returns.

    Raises:
        TestbedError: a process has exited or was not ready in time. The message contains the last line of its output.
    """
    _start_database()
    _start_storage()
    command = [SERVICES_PYTHON, Path(__file__).parent / "mlmd_server.py"]
    process.start(METADATA, [*command, f"{CONTROL_ADDRESS}:{METADATA_PORT}", KFP_STATE / "mlmd.sqlite"], inside=CONTROL)
    _start_argo(build / "bin/workflow-controller")
    _start_api_server(build)
    _start_agent(build / "bin/persistence_agent")


def stop() -> None:
    """Stops all processes that are running."""
    for name in reversed(NAMES):
        process.stop(name, signal.SIGKILL)


def state() -> dict[str, str]:
    """Returns the state of each process."""
    return {
        name: f"running, pid {pid}"
        if (pid := process.pid_of(name))
        else f"stopped; last line: {process.last_line(name)}"
        for name in NAMES
    }


def _start_database() -> None:
    data = KFP_STATE / "database"
    if not data.is_dir():
        options = ["--no-defaults", f"--datadir={data}", "--user=root", "--auth-root-authentication-method=normal"]
        process.run(["mariadb-install-db", *options])
    words = [
        "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={KFP_STATE}/database.sock",
        "--bind-address=127.0.0.1", f"--port={DATABASE_PORT}", f"--pid-file={KFP_STATE}/database.pid",
        # KFP installs MySQL 8.4, whose default character set is utf8mb4.
        "--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4",
    ]  # fmt: skip
    process.start(DATABASE, words, inside=CONTROL)


def _start_storage() -> None:
    # Without the variable, the emulator interprets the first part of a Service's host name as a bucket.
    words = [SERVICES_PYTHON.with_name("moto_server"), "-H", CONTROL_ADDRESS, "-p", str(STORAGE_PORT)]
    process.start(STORAGE, words, inside=CONTROL, extra={"S3_IGNORE_SUBDOMAIN_BUCKETNAME": "1"})
    bucket = urllib.request.Request(f"{STORAGE_URL}/{BUCKET}", method="PUT")
    process.wait("the bucket", _answered(bucket), _TIMEOUT, [STORAGE])


def _start_argo(program: Path) -> None:
    words = [
        program, "--kubeconfig", KUBECONFIG, "--configmap", CONTROLLER_MAP, "--executor-image", ARGOEXEC_IMAGE,
        "--namespace", NAMESPACE, "--namespaced", "--managed-namespace", NAMESPACE, "--loglevel", "info",
    ]  # fmt: skip
    # KFP's deployment also sets the second variable. Its value matches the errors after which Argo retries a pod.
    errors = "(?i)(imminent node shutdown|node is shutting down|preempt|evict|spot|pod deleted)"
    extra = {"KUBECONFIG": str(KUBECONFIG), "LEADER_ELECTION_DISABLE": "true", "TRANSIENT_ERROR_PATTERN": errors}
    process.start(ARGO, words, inside=CONTROL, extra=extra)


def _start_api_server(build: Path) -> None:
    config, samples = KFP_STATE / "config", KFP_STATE / "samples.json"
    config.mkdir(exist_ok=True)
    shutil.copy(build / "files/config.json", config)
    samples.write_text('{"pipelines": []}')
    words = [build / "bin/apiserver", f"--config={config}", f"--sampleconfig={samples}", "-logtostderr=true"]
    process.start(API, words, inside=CONTROL, extra=_api_server_environment())
    healthy = urllib.request.Request(f"{URL}/apis/v2beta1/healthz")
    process.wait("KFP's API server", _answered(healthy), _TIMEOUT, [DATABASE, STORAGE, METADATA, ARGO, API])


def _api_server_environment() -> dict[str, str]:
    database = {"USER": "root", "PASSWORD": "", "HOST": "127.0.0.1", "PORT": str(DATABASE_PORT), "DBNAME": "mlpipeline"}
    storage = {
        "SECURE": "false", "BUCKETNAME": BUCKET, "HOST": CONTROL_ADDRESS, "PORT": str(STORAGE_PORT),
        "ACCESSKEY": ACCESS_KEY, "SECRETACCESSKEY": SECRET_KEY, "REGION": "us-east-1",
    }  # fmt: skip
    return {
        "KUBECONFIG": str(KUBECONFIG),
        "POD_NAMESPACE": NAMESPACE,
        "CLUSTER_DOMAIN": "cluster.local",
        "PUBLISH_LOGS": "true",
        "DBDRIVERNAME": "mysql",
        **{f"DBCONFIG_MYSQLCONFIG_{name}": value for name, value in database.items()},
        **{f"OBJECTSTORECONFIG_{name}": value for name, value in storage.items()},
        # The API server requires this variable, but pipeline runs do not use the visualization server.
        "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_HOST": "127.0.0.1",
        "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_PORT": "1",
        "V2_DRIVER_IMAGE": DRIVER_IMAGE,
        "V2_LAUNCHER_IMAGE": LAUNCHER_IMAGE,
        "COMPILED_PIPELINE_SPEC_PATCH": json.dumps({"podSpecPatch": json.dumps(pod_patch())}),
    }


def _start_agent(program: Path) -> None:
    # The agent reads a token from a fixed path in /run. The agent has its own mount namespace. Therefore the file with
    # the token does not exist on the host.
    script = f"mount -t tmpfs tmpfs /run && mkdir -p {_TOKENS} && printf none >{_TOKENS}/persistenceagent-sa-token"
    words = [
        "unshare", "--mount", "--propagation", "private", "sh", "-c", f'{script} && exec "$@"', "sh",
        program, "--kubeconfig", KUBECONFIG, "--namespace", NAMESPACE, "--mlPipelineAPIServerName", CONTROL_ADDRESS,
        "--ttlSecondsAfterWorkflowFinish", "86400", "--logLevel", "info",
    ]  # fmt: skip
    process.start(AGENT, words, inside=CONTROL, extra={"KUBECONFIG": str(KUBECONFIG)})


def _answered(request: urllib.request.Request) -> Callable[[], bool]:
    """Returns a function that sends a request and returns whether the response reports success."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answered() -> bool:
        try:
            with direct.open(request, timeout=10) as response:
                return 200 <= response.status < 300
        except (urllib.error.URLError, HTTPException, OSError):
            return False

    return answered
