"""Starts a command in a container, and connects the command to the standard streams of this process.

This module opens the connection with the `kubernetes` package.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.api.answers import Answer
from stepset.backends.kubernetes.api.config import ClientConfig
from stepset.backends.kubernetes.api.permissions import Grant, lacks_permission, missing_permission
from stepset.backends.kubernetes.api.replies import FORBIDDEN, Reply, parse_reply
from stepset.errors import InfrastructureError
from stepset.unstructured import number, one_line, part, rows, text

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
"""The channels of the protocol (k8s.io/apimachinery pkg/util/remotecommand)."""
_V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
"""The versions of the protocol. Only v5 has a message to close standard input (channel _CLOSE)."""
_MAX_STATUS = 1 << 16
"""The maximum number of bytes of a message on channel _ERROR. Later bytes are ignored."""
_PROXY = (
    "a proxy between this machine and the API server refuses exec; `kubectl proxy` needs --reject-paths='^$' to allow"
    " it"
)
"""The remedy if a proxy refuses the request. By default, `kubectl proxy` refuses the paths of exec and attach."""


@dataclass(frozen=True)
class PodCommand:
    """A command, and the container in which the command is started.

    `grant` contains the permissions that the account needs to start the command. If the server denies a permission, the
    error message contains the shell command that grants the permissions.
    """

    namespace: str
    pod: str
    container: str
    command: Sequence[str]
    grant: Grant


def exec_in_pod(config: ClientConfig, target: PodCommand) -> int:
    """Starts a command, waits until the command exits, and returns its exit code.

    The command uses the standard streams of this process. If standard input and output are terminals, the command gets
    a terminal of the same size.

    Raises InfrastructureError if the account lacks the permission, if the connection cannot be opened, or if the
    connection is lost before the command exits.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    socket = _connected(config, target, terminal)
    threading.Thread(target=_forward_input, args=(socket,), daemon=True).start()
    status = b""
    try:
        with _raw_terminal(socket) if terminal else nullcontext():
            for channel, data in _messages(socket):
                if channel == _ERROR:
                    status += data[:_MAX_STATUS]
                else:
                    _write_output(channel, data)
    finally:
        socket.shutdown()
    return _exit_code(target.pod, parse_reply(Answer(config.server, 400), status))


def read_from_pod(config: ClientConfig, target: PodCommand, seconds: float, limit: int) -> bytes:
    """Starts a command, and returns its standard output. The command has no standard input.

    Args:
        seconds: the time within which the command must exit.
        limit: the maximum number of bytes of the output. If the output is longer, the connection is closed, and
            `limit + 1` bytes are returned.

    Raises InfrastructureError as `exec_in_pod`, and if the command fails or does not exit in time.
    """
    until = time.monotonic() + seconds
    socket = _connected(config, target, terminal=False, stdin=False)
    socket.settimeout(seconds)
    parts: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _ERROR: bytearray()}
    limits = {_STDOUT: limit + 1, _STDERR: _MAX_STATUS, _ERROR: _MAX_STATUS}
    try:
        for channel, data in _messages(socket):
            if channel in parts:
                parts[channel] += data[: limits[channel] - len(parts[channel])]
            if len(parts[_STDOUT]) > limit:
                return bytes(parts[_STDOUT])
            if time.monotonic() > until:
                break
    finally:
        socket.shutdown()
    if time.monotonic() > until:
        raise InfrastructureError(f"pod {target.pod}: the command did not exit within {seconds:g} s")
    if code := _exit_code(target.pod, parse_reply(Answer(config.server, 400), bytes(parts[_ERROR]))):
        printed = parts[_STDERR].decode(errors="replace").strip().splitlines()
        reason = printed[-1] if printed else f"the command exited with code {code}"
        raise InfrastructureError(f"pod {target.pod}: {one_line(reason, 300)}")
    return bytes(parts[_STDOUT])


def _connected(config: ClientConfig, target: PodCommand, terminal: bool, stdin: bool = True) -> Any:
    """Asks the server to start a command. Returns a WebSocket of the package websocket-client."""
    from kubernetes import client
    from kubernetes.stream import stream

    api = client.CoreV1Api(client.ApiClient(config.configuration))
    # Version 36 and older versions of the kubernetes package request only v4.
    api.api_client.set_default_header("sec-websocket-protocol", f"{_V5},{_V4}")
    try:
        connection = stream(
            api.connect_get_namespaced_pod_exec,
            target.pod,
            target.namespace,
            container=target.container,
            command=list(target.command),
            stdin=stdin,
            stdout=True,
            stderr=not terminal,  # a terminal has no separate standard error
            tty=terminal,
            binary=True,
            _preload_content=False,
        )
        # WSClient of kubernetes 36 and older misses the second of two messages in one TLS record.
        return connection.sock
    except (client.ApiException, AttributeError) as error:
        # The ApiException of a refused WebSocket has no body. Therefore ApiClient.call_api raises AttributeError.
        raise _refusal(config.server, target, error) from error


def _refusal(server: str, target: PodCommand, error: BaseException) -> InfrastructureError:
    """Returns the error for a connection that could not be opened.

    If the server replied, an exception in the chain of `error.__context__` contains the reply.
    """
    from websocket import WebSocketBadStatusException

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, WebSocketBadStatusException):
        error, cause = cause, cause.__context__
    reason, remedy = str(getattr(error, "reason", error)), "check whether the pod is running"
    if cause is not None:
        reply = parse_reply(Answer(server, cause.status_code), cause.resp_body or b"")
        if lacks_permission(reply):
            return missing_permission(reply, target.namespace, target.grant)
        reason = reply.message or f"HTTP {reply.status}"
        # An API server always sends a Status with a message.
        remedy = _PROXY if reply.status == FORBIDDEN and not reply.message else remedy
    return InfrastructureError(
        f"pod {target.pod}: server {server} does not start the command: {one_line(reason, 300)}; {remedy}"
    )


def _messages(socket: Any) -> Iterator[tuple[int, bytes]]:
    """Yields the channel and the data of each message until the connection is closed."""
    from websocket import ABNF, WebSocketException

    with suppress(OSError, WebSocketException):
        while True:
            opcode, frame = socket.recv_data_frame(control_frame=True)
            if opcode == ABNF.OPCODE_CLOSE:
                return
            if opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and frame.data:
                yield frame.data[0], frame.data[1:]


def _send(socket: Any, channel: int, data: bytes) -> None:
    socket.send_binary(bytes([channel]) + data)


def _forward_input(socket: Any) -> None:
    """Sends standard input to the command, then closes the command's standard input.

    Returns early if the connection is closed.
    """
    from websocket import WebSocketException

    headers = {name.lower(): value for name, value in (socket.getheaders() or {}).items()}
    with suppress(OSError, WebSocketException):
        while data := os.read(_STDIN, 1 << 16):
            _send(socket, _STDIN, data)
        if headers.get("sec-websocket-protocol") == _V5:
            _send(socket, _CLOSE, bytes([_STDIN]))


def _write_output(channel: int, data: bytes) -> None:
    out = {_STDOUT: sys.stdout, _STDERR: sys.stderr}.get(channel)
    if out is not None:
        out.buffer.write(data)
        out.buffer.flush()


def _exit_code(pod: str, status: Reply) -> int:
    """Returns the exit code in a Status (k8s.io/kubelet pkg/cri/streaming/remotecommand/exec.go)."""
    if text(status.body, "status") == "Success":
        return 0
    for cause in rows(part(status.body, "details"), "causes"):
        if text(cause, "reason") == "ExitCode":
            return number(cause, "message", 1)
    if status.message:
        raise InfrastructureError(f"pod {pod}: the command was not started: {status.message}")
    raise InfrastructureError(f"pod {pod}: the connection ended before the command; it may continue in the pod")


@contextmanager
def _raw_terminal(socket: Any) -> Iterator[None]:
    """Sends each key and each new size of the terminal to the command while the `with` block runs."""
    import termios
    import tty

    def send_size(*_: object) -> None:
        columns, rows = os.get_terminal_size()  # ignores the variables COLUMNS and LINES
        _send(socket, _RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    before = termios.tcgetattr(_STDIN)
    handler = signal.signal(signal.SIGWINCH, send_size)
    try:
        tty.setraw(_STDIN)
        send_size()
        yield
    finally:
        signal.signal(signal.SIGWINCH, handler)
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
