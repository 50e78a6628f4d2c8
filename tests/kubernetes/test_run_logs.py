"""The logs of many pods: one consumer, little memory, and a shared limit on connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs import connections, pod_log
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from tests.kubernetes.log_server import HEAD, LogServer, line
from tests.kubernetes.nowhere import client_at


def pods(count: int, *, over: bool = False) -> list[LogPod]:
    return [
        LogPod(f"uid-{index}", f"pod-{index}", "node", "node", index, 0, f"node {index}", False, True, 0, over, False)
        for index in range(count)
    ]


def test_one_output_is_consumed_at_a_time() -> None:
    async def consumed() -> tuple[int, int]:
        at_once, most, taken = 0, 0, 0

        async def consume(output: PodOutput) -> None:
            nonlocal at_once, most, taken
            at_once += 1
            most = max(most, at_once)
            taken += len(output.batch.lines)
            await asyncio.sleep(0.01)
            at_once -= 1

        async with LogServer(lines=500) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            logs.see(pods(8, over=True))
            assert await logs.finish(60), logs.problems
            await logs.close()
        return most, taken

    assert asyncio.run(consumed()) == (1, 8 * 500)


def test_the_position_in_a_log_is_kept_until_its_pod_is_deleted() -> None:
    """Positions are stored with the task of a run, which may have many restarts."""

    async def positions() -> tuple[list[str], list[str]]:
        async def consume(output: PodOutput) -> None:
            pass

        async with LogServer(lines=3) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            logs.see(pods(2, over=True))
            assert await logs.finish(60), logs.problems
            read = sorted(logs.positions)
            logs.see([replace(pods(2, over=True)[0], deleted=True)])
            await logs.close()
            return read, sorted(logs.positions)

    assert asyncio.run(positions()) == (["uid-0", "uid-1"], ["uid-1"])


def test_a_response_is_not_read_while_its_lines_are_consumed() -> None:
    async def sent_meanwhile() -> int:
        blocked, taken = asyncio.Event(), asyncio.Event()

        async def consume(output: PodOutput) -> None:
            taken.set()
            await blocked.wait()

        async with LogServer(lines=2_000_000) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            logs.see(pods(1, over=True))
            await taken.wait()
            before = -1
            while before != server.sent:
                before = server.sent
                await asyncio.sleep(1)
            await logs.close()
            return before

    # The kernel and aiohttp buffer at most this for one connection.
    assert asyncio.run(sent_meanwhile()) < 16 * 1024 * 1024


def test_more_logs_than_connections_take_turns_and_each_line_is_consumed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TURN", 0.1)

    async def lines() -> tuple[dict[str, list[bytes]], int]:
        found: dict[str, list[bytes]] = {}

        async def consume(output: PodOutput) -> None:
            for _, text in output.batch.lines:
                found.setdefault(output.pod, []).append(text)

        async with LogServer(lines=3, follows=True) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume, connections=LogConnections(2))
            logs.see(pods(6))  # running pods: each would keep its connection
            while len(found) < 6 or any(len(each) < 3 for each in found.values()):
                await asyncio.sleep(0.05)
            most = server.most_at_once
            await logs.close()
        return found, most

    found, most = asyncio.run(asyncio.wait_for(lines(), 120))
    assert {tuple(each) for each in found.values()} == {(b"line 0", b"line 1", b"line 2")}
    assert most == 2


@pytest.mark.parametrize("error", [ZeroDivisionError, BrokenPipeError, TimeoutError])
def test_an_exception_of_the_consumer_is_reported_as_it_is(error: type[Exception]) -> None:
    async def problems() -> tuple[str, ...]:
        async def consume(output: PodOutput) -> None:
            raise error

        async with LogServer(lines=1) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            logs.see(pods(1, over=True))
            assert not await logs.finish(60)
            return logs.problems

    assert asyncio.run(problems()) == (f"pod pod-0: its log cannot be read: {error()!r}",)


class EndsLate(LogServer):
    """Sends the last line of a followed log when `finish` is set, and has no log for other requests."""

    def __init__(self) -> None:
        super().__init__(lines=1)
        self.finish = asyncio.Event()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, followed: bool) -> None:
        if not followed:
            writer.write(b'HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n{"kind": "Status"}')
            return
        writer.write(HEAD)
        for number in range(2):
            text = line(number)
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await self.finish.wait()
        writer.write(b"0\r\n\r\n")


class TestFinish:
    """The last lines of containers that have ended."""

    def test_requests_the_rest_although_the_response_stays_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pod_log, "DELETED_READ_TIMEOUT", 3600)

        async def lines() -> list[bytes]:
            async with LogServer(lines=3, follows=True) as server:
                return await last_lines(server, count=3, deleted=False)

        assert asyncio.run(lines()) == [b"line 0", b"line 1", b"line 2"]

    def test_reads_the_open_response_of_a_deleted_pod_to_its_end(self) -> None:
        async def lines() -> list[bytes]:
            async with EndsLate() as server:
                asyncio.get_running_loop().call_later(1.0, server.finish.set)
                return await last_lines(server, count=1, deleted=True)

        assert asyncio.run(lines()) == [b"line 0", b"line 1"]


async def last_lines(server: LogServer, count: int, *, deleted: bool) -> list[bytes]:
    """Returns the lines of a pod whose container ends after `count` of them."""
    found: list[bytes] = []

    async def consume(output: PodOutput) -> None:
        found.extend(text for _, text in output.batch.lines)

    async with client_at(server.port) as client:
        logs = RunLogs(NamespacedClient(client, "ns"), consume)
        logs.see(pods(1))
        while len(found) < count:
            await asyncio.sleep(0.01)
        logs.see([replace(pod, deleted=deleted) for pod in pods(1, over=True)])
        assert await logs.finish(30), logs.problems
        await logs.close()
    return found


def test_a_consumer_that_takes_longer_than_the_timeout_receives_every_line() -> None:
    async def taken() -> int:
        count = 0

        async def consume(output: PodOutput) -> None:
            nonlocal count
            await asyncio.sleep(1)
            count += len(output.batch.lines)

        async with LogServer(lines=3) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            logs.see(pods(3, over=True))
            assert await logs.finish(0.5), logs.problems
            await logs.close()
        return count

    assert asyncio.run(taken()) == 9


def test_logs_that_were_not_needed_are_read_after_read_all() -> None:
    async def read() -> tuple[set[str], set[str]]:
        consumed: set[str] = set()

        async def consume(output: PodOutput) -> None:
            consumed.add(output.pod)

        async with LogServer(lines=3) as server, client_at(server.port) as client:
            needed = frozenset({"rank 0"})
            logs = RunLogs(NamespacedClient(client, "ns"), consume, sources=needed, ranks={"node": (0, 1)})
            logs.see(pods(3, over=True))
            logs.see([replace(pods(3, over=True)[2], deleted=True)])
            while not consumed:
                await asyncio.sleep(0.01)
            before = set(consumed)
            logs.read_all()
            assert await logs.finish(60), logs.problems
            await logs.close()
        return before, consumed

    assert asyncio.run(read()) == ({"uid-0"}, {"uid-0", "uid-1"})
