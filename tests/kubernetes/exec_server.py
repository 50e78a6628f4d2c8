"""A server of pods/exec: starts the requested command on this machine, and speaks the protocol v5.channel.k8s.io."""

from __future__ import annotations

import asyncio
import json
from typing import Self

from aiohttp import WSMsgType, web

STDOUT, STDERR, ERROR, CLOSE = 1, 2, 3, 255


class ExecServer:
    """Listens on this machine during `async with`.

    Args:
        status: a status other than 101 refuses the connection.
        message: that of the Status with which the server refuses it. If it is empty, the body is plain text, as the
            body of a proxy.

    Attributes:
        port: the port of the server.
        queries: the parameters of each request, in order.
    """

    def __init__(self, status: int = 101, message: str = "") -> None:
        self._status, self._message = status, message
        self.port = 0
        self.queries: list[list[tuple[str, str]]] = []
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", self._exec)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:  # after a client has disconnected, nothing reads the pipes until they end
            process._transport.close()  # type: ignore[attr-defined]  # the only way to close the pipes
            await process.wait()
        await self._runner.cleanup()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if self._status != 101 and not self._message:
            return web.Response(text="Forbidden\n", status=self._status)
        if self._status != 101:
            return web.json_response({"kind": "Status", "message": self._message}, status=self._status)
        self.queries.append([*request.query.items()])
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        command = request.query.getall("command")
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
            self._processes.append(process)
        except FileNotFoundError:
            # The Status of a kubelet 1.36.
            reason = f'exec: "{command[0]}": executable file not found in $PATH'
            failed = {"status": "Failure", "reason": "InternalError", "details": {"causes": [{"message": reason}]}}
            failed["message"] = f"Internal error occurred: error executing command in container: {reason}"
            await socket.send_bytes(bytes([ERROR]) + json.dumps(failed).encode())
            await socket.close()
            return socket

        async def send(channel: int, reader: asyncio.StreamReader | None) -> None:
            assert reader is not None
            while data := await reader.read(1 << 16):
                await socket.send_bytes(bytes([channel]) + data)

        async def receive() -> None:
            assert process.stdin is not None
            async for message in socket:
                if message.type != WSMsgType.BINARY:
                    continue
                if message.data[0] == CLOSE:
                    process.stdin.close()
                elif message.data[0] == 0:
                    process.stdin.write(message.data[1:])

        reading = asyncio.create_task(receive())
        await asyncio.gather(send(STDOUT, process.stdout), send(STDERR, process.stderr))
        code = await process.wait()
        cause = {"reason": "ExitCode", "message": str(code)}
        end = {"status": "Failure", "details": {"causes": [cause]}} if code else {"status": "Success"}
        await socket.send_bytes(bytes([ERROR]) + json.dumps(end).encode())
        reading.cancel()
        await socket.close()
        return socket
