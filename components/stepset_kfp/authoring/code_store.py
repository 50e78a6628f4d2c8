"""Uploads packed code when a pipeline is compiled. The step receives the code as an artifact.

The environment variable STEPSET_KFP_CODE_STORE contains the URI of a directory in an object store. KFP's launcher must
be able to read this store. With KFP's local runner, the store is a directory on this machine.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepset.errors import BadInputError, InfrastructureError
from stepset_kfp.authoring.s3 import put_object

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

VARIABLE = "STEPSET_KFP_CODE_STORE"
REMEDY = (
    f"set {VARIABLE} to a directory of KFP's object store, such as s3://BUCKET/code, so that code becomes an artifact,"
    " or use code: {image: REF, path: DIR}, code: {claim: NAME, path: DIR}, or code in the image; with"
    " KFP's local runner call kfp.local.init before the pipeline is defined"
)


def code_store() -> str | None:
    """Returns the URI or the directory of the store for code.

    The function returns the value of STEPSET_KFP_CODE_STORE. If the variable is not set and KFP's local runner is in
    use, the function returns a directory on this machine. If the variable is not set and the local runner is not in
    use, the function returns None. Raises BadInputError if the variable contains a URI that KFP's launcher cannot read.
    """
    from kfp.local.config import LocalExecutionConfig

    if store := os.environ.get(VARIABLE):
        if not store.startswith(("s3://", "minio://", "gs://", "/")):
            raise BadInputError(f"{VARIABLE}: {store!r} is not a store; give s3://, minio:// or gs:// BUCKET/DIRECTORY")
        return store.rstrip("/")
    local = LocalExecutionConfig.instance
    return None if local is None else str(Path(local.pipeline_root).resolve() / "stepset-code")


def upload(archive: bytes, store: str) -> str:
    """Writes an archive to a store and returns the URI of the archive.

    The URI contains the SHA-256 digest of the archive. Raises InfrastructureError if the archive cannot be written.
    """
    name = f"{hashlib.sha256(archive).hexdigest()}.tar.gz"
    uri = f"{store}/{name}"
    try:
        if store.startswith("/"):
            Path(store).mkdir(parents=True, exist_ok=True)
            unfinished = Path(f"{uri}.{os.getpid()}")
            unfinished.write_bytes(archive)
            unfinished.replace(uri)
        else:
            bucket, _, key = uri.partition("://")[2].partition("/")
            if store.startswith("gs://"):
                _put_to_google(bucket, key, archive)
            else:
                put_object(bucket, key, archive, os.environ)
    except OSError as error:
        raise InfrastructureError(f"{VARIABLE}: {uri} cannot be written: {error.strerror or error}") from error
    return uri


def import_code(uri: str) -> PipelineTask:
    """Returns a task whose output is the uploaded archive."""
    from kfp import dsl

    # The display name of this task must not be changed. KFP finds the output of an importer by the display name
    # (backend/src/v2/component/importer_launcher.go in 2.17.0).
    return dsl.importer(artifact_uri=uri, artifact_class=dsl.Artifact)


def _put_to_google(bucket: str, key: str, content: bytes) -> None:
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage

    try:
        storage.Client().bucket(bucket).blob(key).upload_from_string(content, "application/gzip")
    except (GoogleAPIError, GoogleAuthError) as error:
        raise OSError(str(error)) from error
