"""What the steps of a pipeline run have stored: KFP's default pipeline root in the emulator of the object store."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.kfp_backend.layout import ACCESS_KEY, BUCKET, SECRET_KEY, SERVICES_PYTHON
from tools.kfp_backend.services import STORAGE_URL

# boto3 is a requirement of the emulator, in its own environment.
_DOWNLOAD = """\
import pathlib, sys
import boto3
url, key, secret, bucket, run, target = sys.argv[1:]
client = boto3.client("s3", endpoint_url=url, aws_access_key_id=key, aws_secret_access_key=secret, region_name="any")
for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
    for each in page.get("Contents", ()):
        before, found, name = each["Key"].partition(f"/{run}/")
        if found:
            file = pathlib.Path(target, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, each["Key"], str(file))
"""


def artifacts(run: str, task: str, name: str, directory: Path) -> list[bytes]:
    """Returns the contents of the artifacts of a pipeline run; tasks in nested pipelines may have the same name.

    Args:
        run: the pipeline run.
        task: the name of the step in the pipeline.
        name: the artifact's name.
        directory: where all artifacts of the run are stored, as task/salt/name.
    """
    settings = [STORAGE_URL, ACCESS_KEY, SECRET_KEY, BUCKET, run, str(directory)]
    subprocess.run([str(SERVICES_PYTHON), "-c", _DOWNLOAD, *settings], check=True, env={"NO_PROXY": "*"})
    found = [file for file in directory.glob(f"{task}/*/{name}") if file.is_file()]
    assert found, (task, name, sorted(map(str, directory.rglob("*"))))
    return [file.read_bytes() for file in found]
