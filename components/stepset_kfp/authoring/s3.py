"""Writes an object to S3 or a compatible store. The requests are signed with Signature Version 4 of AWS.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from stepset.errors import BadInputError

_ALGORITHM = "AWS4-HMAC-SHA256"
_TIMEOUT = 60.0


def put_object(bucket: str, key: str, content: bytes, environ: Mapping[str, str]) -> None:
    """Writes an object to a bucket.

    The function reads the environment variables of the AWS SDKs from `environ`: AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, and AWS_REGION or AWS_DEFAULT_REGION. For a store of another provider,
    AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL must contain the URL of the store.

    Raises:
        BadInputError: there are no credentials.
        OSError: the store cannot be reached, or refuses the object.
    """
    access, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret:
        raise BadInputError(
            "STEPSET_KFP_CODE_STORE: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set;"
            " `aws configure export-credentials --format env` prints them"
        )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    base = f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://{bucket}.s3.{region}.amazonaws.com"
    url = f"{base}/{quote(key)}"
    # If the request has no content type, urllib sets the content type that HTML forms use. Some stores parse such
    # content instead of storing it.
    headers = {
        "content-type": "application/gzip",
        "x-amz-date": datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
    }
    if token := environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    signed = sign("PUT", url, headers, content, access, secret, region)
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=content, headers=signed, method="PUT"), timeout=_TIMEOUT
        ):
            pass
    except urllib.error.HTTPError as error:
        raise OSError(f"HTTP {error.code} {error.reason}: {error.read(300).decode(errors='replace')}") from error
    except (urllib.error.URLError, http.client.HTTPException, ValueError) as error:
        raise OSError(str(getattr(error, "reason", error))) from error


def sign(
    method: str, url: str, headers: Mapping[str, str], content: bytes, access: str, secret: str, region: str
) -> dict[str, str]:
    """Returns the given headers of a request and the headers that authorize the request.

    Args:
        method: the HTTP method.
        url: the URL of the object. The path must be quoted according to RFC 3986. The URL must not have a query.
        headers: the headers of the request, with names in lower case. The header `x-amz-date` is required.
        content: the body of the request.
        access: the ID of the access key.
        secret: the secret of the access key.
        region: the region of the bucket.
    """
    parts = urlsplit(url)
    digest = hashlib.sha256(content).hexdigest()
    all_headers = {**headers, "host": parts.netloc, "x-amz-content-sha256": digest}
    names = ";".join(sorted(all_headers))
    canonical = "\n".join(
        (method, parts.path, "", *(f"{name}:{all_headers[name]}" for name in sorted(all_headers)), "", names, digest)
    )
    moment = headers["x-amz-date"]
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    authorization = f"{_ALGORITHM} Credential={access}/{scope},SignedHeaders={names},Signature={key.hex()}"
    return {**all_headers, "authorization": authorization}
