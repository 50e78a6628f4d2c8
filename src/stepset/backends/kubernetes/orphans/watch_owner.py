"""The program of a watcher's pod, which stops one run when the run's owner has finished and will not be retried.

The program may run with the Python of a training image. Therefore the program uses only the standard library and works
on Python 3.8. The configuration of the program is JSON (`watcher.py`). If the server does not answer, refuses a request
or sends an unreadable reply, the program does not stop the run.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
import zlib
from typing import Any, Dict, List, Optional, Tuple

PERIOD = 5.0
"""Seconds between two reads of the run and its owner."""
CONFIRMATIONS = 2
"""The run is stopped after this number of consecutive reads that show that the owner has finished."""
TIMEOUT = 10.0
"""The time limit of one request in seconds."""
MAX_NODES = 16 << 20
"""The maximum size of a Workflow's decompressed nodes in bytes. The memory of the pod is sufficient for this size."""
ORPHANED = "stepset.dev/orphaned"
"""An annotation of a suspended run. The value is the reason why the run has no owner."""

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# The exceptions for a missing reply, for a reply that is not JSON, and for fields with unexpected types.
_UNUSABLE = (
    *(OSError, http.client.HTTPException, ValueError, zlib.error),
    *(AttributeError, KeyError, TypeError, RecursionError),
)
_RETRY = re.compile(r"\(\d+\)(?=\.|$)")
_NODE_ENDED = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")
_WORKFLOW_ENDED = ("Succeeded", "Failed", "Error")

Fields = Dict[str, Any]


def main() -> None:
    """Watches until the run is finished. After an error of the server, the program continues to watch."""
    # If the pod is evicted, the exit code is not 0. Then the Job creates a new pod.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    config = json.loads(sys.argv[1])
    watcher = Watcher(config, Server())
    while not watcher.check():
        time.sleep(PERIOD)


class Server:
    """Sends requests to the API server, with the credentials of the pod."""

    def __init__(self, account: str = _ACCOUNT) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._url = "https://{}:{}".format("[" + host + "]" if ":" in host else host, port)
        self._account = account
        self._tls = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))

    def request(self, method: str, path: str, body: Optional[Fields] = None, accept: str = "application/json") -> Any:
        """Sends a request, and returns the HTTP status and the decoded body of the reply.

        Raises OSError, HTTPException or ValueError if there is no reply, or if the reply is not JSON.
        """
        with open(os.path.join(self._account, "token"), encoding="ascii") as file:
            token = file.read().strip()
        headers = {"Authorization": "Bearer " + token, "Accept": accept, "User-Agent": "stepset-orphan"}
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, dict(headers, **({"Content-Type": kind} if data else {})), method=method
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )
        try:
            with opener.open(request, timeout=TIMEOUT) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


class UnprovenError(Exception):
    """A request failed, or its reply does not show whether an object exists."""


class Watcher:
    """Watches one run and the run's owner.

    Args:
        config: a mapping with three keys. `run` and `owner` are mappings with the keys `path` and `uid`. `how` is
            `suspend` or `delete`. If the owner is a step of a Workflow, `owner` also contains `node`, the name of the
            step.
        server: an object with the method `request`.
    """

    def __init__(self, config: Fields, server: Any) -> None:
        self._run, self._owner, self._how = config["run"], config["owner"], config["how"]
        self._server = server
        self._proofs = 0
        self._version = ""
        self._reason = ""
        self._handled = False
        self._reported = ""

    def check(self) -> bool:
        """Reads the run and its owner once.

        If the last CONFIRMATIONS calls found that the owner has finished, stops the run.

        Returns whether the run has finished and the watcher can exit.
        """
        try:
            run = self._get(self._run)
            if run is None or finished(run):
                self._report("the run has ended")
                return True
            reason = self._owner_end()
            self._proofs = self._proofs + 1 if reason else 0
            if not reason:
                self._handled = False
            elif self._proofs >= CONFIRMATIONS and not self._handled:
                if not stopped(run):
                    self._stop(run, reason)
                self._handled = True  # if a user resumes the run later, do not suspend it again
        except UnprovenError as error:
            self._proofs = 0
            self._report(str(error))
        except _UNUSABLE as error:
            self._proofs = 0
            self._report("no usable reply from the API server: " + repr(error))
        return False

    def _owner_end(self) -> str:
        """Returns the reason why the owner has finished; empty if the owner has not finished or may be retried."""
        if "node" in self._owner:
            about = self._get(self._owner, _METADATA_ONLY)
            version = "" if about is None else str(about["metadata"].get("resourceVersion", ""))
            if version and version == self._version:
                return self._reason
            workflow = None if about is None else self._get(self._owner)
            self._reason = workflow_end(workflow, self._owner["node"])
            self._version = "" if workflow is None else str(workflow["metadata"].get("resourceVersion", ""))
            return self._reason
        return pod_end(self._get(self._owner))

    def _get(self, what: Fields, accept: str = "application/json") -> Optional[Fields]:
        """Returns an object. Returns None if the server states that no object with this name and uid exists."""
        status, body = self._server.request("GET", what["path"], None, accept)
        if status == 200 and isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            return body if body["metadata"].get("uid") == what["uid"] else None
        if status == 404 and is_absent(body, what["path"].rpartition("/")[2]):
            return None
        raise UnprovenError("{} cannot be read: HTTP {} {}".format(what["path"], status, message_of(body)))

    def _stop(self, run: Fields, reason: str) -> None:
        method, body = stop_request(run, self._how, reason)
        status, reply = self._server.request(method, self._run["path"], body)
        if status >= 300:
            raise UnprovenError("the run cannot be stopped: HTTP {} {}".format(status, message_of(reply)))
        self._report("the run is stopped: " + reason)

    def _report(self, line: str) -> None:
        """Writes a line to the pod's log. If the line equals the previous line, writes nothing."""
        if line != self._reported:
            self._reported = line
            # Print only ASCII, because the locale of an image may not support other characters. Control characters are
            # also escaped.
            text = line.encode("unicode_escape").decode("ascii")
            print(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + text, flush=True)


def is_absent(body: Any, name: str) -> bool:
    """Returns whether the body of a reply with the status 404 states that the object with this name does not exist.

    A proxy may also reply with 404. A server that does not serve the kind of the object also replies with 404. The
    replies in these two cases do not contain the name.
    """
    if not isinstance(body, dict) or body.get("kind") != "Status" or body.get("reason") != "NotFound":
        return False
    return (body.get("details") or {}).get("name") == name


def message_of(body: Any) -> str:
    """Returns the message of an error reply; empty if the reply has no message."""
    return str(body.get("message", "")) if isinstance(body, dict) else ""


def workflow_end(workflow: Optional[Fields], node: str) -> str:
    """Returns the reason why a step of a Workflow has finished.

    Returns an empty string if the step has not finished, if it may be retried, or if its state is unknown.

    Args:
        workflow: the Workflow; None if the Workflow does not exist.
        node: the name of the step without the counters of retries.
    """
    if workflow is None:
        return "its Workflow does not exist"
    spec, status = workflow.get("spec") or {}, workflow.get("status") or {}
    phase = status.get("phase")
    if phase in _WORKFLOW_ENDED:
        return "its Workflow is {}".format(phase)
    nodes = _nodes(status)
    own = [each for each in nodes if _step(each) == node]
    if not own or any(each.get("phase") not in _NODE_ENDED for each in own):
        return ""
    ending = bool(spec.get("shutdown")) or spec.get("activeDeadlineSeconds") == 0
    if not ending and any(_may_retry(each, node) for each in nodes):
        return ""
    last = max(own, key=lambda each: str(each.get("finishedAt") or ""))
    return "its step {} is {}".format(node, last["phase"])


def _may_retry(node: Fields, step: str) -> bool:
    """Returns whether `node` may retry a step.

    The result is True if `node` is an unfinished Retry node of the step or of a parent of the step.
    """
    if node.get("type") != "Retry" or node.get("phase") in _NODE_ENDED:
        return False
    return step == _step(node) or step.startswith(_step(node) + ".")


def _step(node: Fields) -> str:
    """Returns the name of a node without the counters of retries."""
    return _RETRY.sub("", str(node.get("name", "")))


def _nodes(status: Fields) -> List[Fields]:
    """Returns the nodes of a Workflow; empty if the nodes are not stored in the Workflow."""
    nodes = status.get("nodes")
    if not nodes and status.get("compressedNodes"):
        nodes = json.loads(_decompressed(base64.b64decode(status["compressedNodes"])))
    return [each for each in (nodes or {}).values() if isinstance(each, dict)]


def _decompressed(data: bytes) -> bytes:
    """Returns the content of a gzip stream.

    Raises ValueError if the content is larger than MAX_NODES or incomplete, and zlib.error if it is damaged.
    """
    stream = zlib.decompressobj(31)
    text = stream.decompress(data, MAX_NODES)
    if not stream.eof:
        raise ValueError("compressedNodes is incomplete, or larger than {} bytes".format(MAX_NODES))
    return text


def pod_end(pod: Optional[Fields]) -> str:
    """Returns the reason why the pod of an owner has finished; empty if the pod has not finished.

    `pod` is None if the pod does not exist.
    """
    if pod is None:
        return "its pod does not exist"
    phase = (pod.get("status") or {}).get("phase")
    return "its pod is {}".format(phase) if phase in ("Succeeded", "Failed") else ""


def finished(run: Fields) -> bool:
    """Returns whether a workload has finished."""
    status = run.get("status") or {}
    ended = ("Complete", "Completed", "Failed")
    if any(row.get("type") in ended and row.get("status") == "True" for row in status.get("conditions") or ()):
        return True
    state = status.get("state")  # the field of Volcano's jobs
    if isinstance(state, dict) and state.get("phase") in ("Completed", "Failed", "Aborted", "Terminated"):
        return True
    # A StatefulSet never finishes by itself. If the run is finished, the StatefulSet has a verdict.
    return run.get("kind") == "StatefulSet" and "stepset.dev/verdict" in (run["metadata"].get("annotations") or {})


def stopped(run: Fields) -> bool:
    """Returns whether a workload is being deleted, or was suspended by a user, a step or a watcher."""
    if run["metadata"].get("deletionTimestamp"):
        return True
    spec = run.get("spec") or {}
    return stays_suspended(run) and (spec.get("suspend") is True or spec.get("replicas") == 0)


def stays_suspended(run: Fields) -> bool:
    """Returns whether a workload can be suspended permanently.

    Kueue would resume a workload that is in a queue. Volcano Jobs cannot be suspended.
    """
    queued = "kueue.x-k8s.io/queue-name" in (run["metadata"].get("labels") or {})
    return not queued and not str(run.get("apiVersion", "")).startswith("batch.volcano.sh/")


def stop_request(run: Fields, how: str, reason: str) -> Tuple[str, Fields]:
    """Returns the method and the body of the request that suspends or deletes a run.

    The uid and the resource version are preconditions. If the run changes after the watcher has read the run, the
    server rejects the request. Such a change occurs, for example, if another step resumes the run.
    """
    read = {key: run["metadata"][key] for key in ("uid", "resourceVersion")}
    if how == "suspend" and stays_suspended(run):
        spec = {"replicas": 0} if run.get("kind") == "StatefulSet" else {"suspend": True}
        return "PATCH", {"metadata": dict(read, annotations={ORPHANED: reason}), "spec": spec}
    policy = "Background" if run.get("kind") == "TrainJob" else "Foreground"
    return "DELETE", {"preconditions": read, "propagationPolicy": policy}


if __name__ == "__main__":
    main()
