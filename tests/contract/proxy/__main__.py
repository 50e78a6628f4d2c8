"""The proxy's process: `python -m tests.contract.proxy DIRECTORY`.

DIRECTORY contains `ca.crt`, `server.crt` and `server.key`. Prints the port of its control channel, which is plain HTTP
on 127.0.0.1, and ends when its standard input is closed.

    POST   /gates                 {upstream, ca, token, tokens, serials} -> {gate, port}
    GET    /gates/G               -> {seen, rules}
    DELETE /gates/G
    PUT    /gates/G/credentials   {tokens, serials}
    PUT    /gates/G/rules/NAME    a Rule
    DELETE /gates/G/rules/NAME
    POST   /gates/G/drop          {on} -> {dropped}
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.contract.proxy.gate import Gate
from tests.contract.proxy.rules import Rule


class Control:
    """The control channel.

    Args:
        directory: the directory of the certificates.
    """

    def __init__(self, directory: Path) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(directory / "server.crt", directory / "server.key")
        self._tls.load_verify_locations(directory / "ca.crt")
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self._gates: dict[str, Gate] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self.app = web.Application()
        self.app.add_routes(
            [
                web.post("/gates", self._add),
                web.get("/gates/{gate}", self._show),
                web.delete("/gates/{gate}", self._remove),
                web.put("/gates/{gate}/credentials", self._accept),
                web.put("/gates/{gate}/rules/{rule}", self._set),
                web.delete("/gates/{gate}/rules/{rule}", self._unset),
                web.post("/gates/{gate}/drop", self._drop),
            ]
        )

    async def close(self) -> None:
        """Stops everything."""
        for gate in self._gates.values():
            await gate.stop()
        for session in self._sessions.values():
            await session.close()

    async def _add(self, request: web.Request) -> web.Response:
        settings = await request.json()
        session = self._sessions.get(settings["ca"])
        if session is None:
            context = ssl.create_default_context(cadata=settings["ca"])
            session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=context), auto_decompress=False)
            self._sessions[settings["ca"]] = session
        tokens, serials = set(settings["tokens"]), set(settings["serials"])
        gate = Gate(settings["upstream"], settings["token"], tokens, serials, session)
        await gate.start(self._tls)
        name = str(gate.port)
        self._gates[name] = gate
        return web.json_response({"gate": name, "port": gate.port})

    def _gate(self, request: web.Request) -> Gate:
        return self._gates[request.match_info["gate"]]

    async def _show(self, request: web.Request) -> web.Response:
        gate = self._gate(request)
        return web.json_response({"seen": gate.seen, "rules": sorted(gate.rules)})

    async def _remove(self, request: web.Request) -> web.Response:
        await self._gates.pop(request.match_info["gate"]).stop()
        return web.json_response({})

    async def _accept(self, request: web.Request) -> web.Response:
        gate, credentials = self._gate(request), await request.json()
        gate.tokens, gate.serials = set(credentials["tokens"]), set(credentials["serials"])
        return web.json_response({})

    async def _set(self, request: web.Request) -> web.Response:
        self._gate(request).set_rule(request.match_info["rule"], Rule.from_dict(await request.json()))
        return web.json_response({})

    async def _unset(self, request: web.Request) -> web.Response:
        self._gate(request).set_rule(request.match_info["rule"], None)
        return web.json_response({})

    async def _drop(self, request: web.Request) -> web.Response:
        kinds = (await request.json())["on"]
        return web.json_response({"dropped": self._gate(request).drop(tuple(kinds))})


async def main(directory: Path) -> None:
    """Serves until standard input is closed."""
    control = Control(directory)
    runner = web.AppRunner(control.app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await control.close()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
