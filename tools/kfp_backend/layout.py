"""Contains the versions, names, addresses and paths of the Kubeflow Pipelines backend."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.testbed.layout import CONTROL_ADDRESS, STATE

ROOT = Path(__file__).resolve().parents[2]

KFP_VERSION = "2.17.0"
ARGO_VERSION = "4.0.5"
"""The version of Argo Workflows that KFP's go.mod requires."""

NAMESPACE = "kubeflow"
"""The namespace of KFP. KFP's programs and settings contain this name."""
ACCOUNT = "pipeline-runner"
BUCKET = "mlpipeline"
ACCESS_KEY, SECRET_KEY = "minio", "minio123"

DRIVER_IMAGE = f"ghcr.io/kubeflow/kfp-driver:{KFP_VERSION}"
LAUNCHER_IMAGE = f"ghcr.io/kubeflow/kfp-launcher:{KFP_VERSION}"
ARGOEXEC_IMAGE = f"quay.io/argoproj/argoexec:v{ARGO_VERSION}"
STEP_IMAGE = "stepset.test/kfp-step:1"
"""The image of the tests' steps. Pods with this image mount this machine's programs, `.venvs/kfp` and this checkout."""

HTTP_PORT, GRPC_PORT = 8888, 8887
METADATA_PORT, STORAGE_PORT, DATABASE_PORT = 18080, 19000, 13306
URL = f"http://{CONTROL_ADDRESS}:{HTTP_PORT}"
"""The URL of KFP's API server, for kfp.Client."""

KFP_STATE = STATE / "kfp"
"""The directory of all files of the backend except the cache. The directory is deleted together with the cluster."""
STARTED_CLUSTER_FILE = KFP_STATE / "started-cluster"
"""A file that exists if `up` has started the cluster. In this case, `down` stops the cluster."""
SERVICES_PYTHON = ROOT / ".venvs/kfp-backend/bin/python"
"""The Python interpreter of the S3 emulator and of the metadata server (`make setup-kfp-backend`)."""
STEPS_ENVIRONMENT = ROOT / ".venvs/kfp"
