"""Pods' logs on a real cluster over a network with faults: every line once, in order, in bounded memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import connect, iterate
from stepset.backends.kubernetes.find import pods_with_logs
from stepset.backends.kubernetes.logs.connections import LogConnections
from stepset.backends.kubernetes.logs.pod_log import PodLog
from stepset.backends.kubernetes.logs.pods import LogPod, log_pod
from stepset.backends.kubernetes.logs.reading import merged_rows
from stepset.run_status import LogLine, Phase
from stepset.watch.lines import Batch
from tests.cluster.proxy import Proxy, proxy_to
from tests.cluster.runs import runs_in
from tests.cluster.starts import two_starts
from tests.cluster.testbed import faults
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice

pytestmark = pytest.mark.cluster

RUN = "run"
RANKS, LINES = 16, 20_000
SECONDS = 10
"""For which a rank prints. A connection that is cut before it has transferred the lines of two seconds makes no
progress, because the log API can resume only at whole seconds."""
NUMBERED = """
import sys, time
for first in range(0, {lines}, 250):
    sys.stdout.write("".join(f"[rank {rank}] {{n}} {padding}\\n" for n in range(first, first + 250)))
    sys.stdout.flush()
    time.sleep({pause})
"""
ENDLESS = """
import os, time
block = b"x" * 1000000
for _ in range({megabytes}):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
"""


class Namespace:
    """A namespace, and a proxy with network faults in front of its API server."""

    def __init__(self, cluster: Cluster, name: str, proxy: Proxy, kubeconfig: str) -> None:
        self.cluster, self.name, self.proxy, self.kubeconfig = cluster, name, proxy, kubeconfig
        # Only pods that a Job of the run controls belong to it. No controller manages this one.
        template = {"spec": {**cluster.pod_spec(["true"]), "restartPolicy": "Never"}}
        spec = {"managedBy": "example.com/nothing", "parallelism": 4, "template": template}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": RUN}, "spec": spec}
        cluster.apply(job, name)
        self.job_uid = str(cluster.get(f"job/{RUN}", name)["metadata"]["uid"])

    def pod(
        self, name: str, code: str, *, index: int = 0, group: str = "node", agent: bool = False, **more: Any
    ) -> None:
        """Creates a pod of the run that runs Python code.

        Args:
            name: the pod's name.
            code: the Python code.
            index, group: the pod's group, and its index in it.
            agent: whether readers treat it as a pod with the agent; they recognise one by the path in its command.
            more: fields of its spec, and `attempt`, the gang's attempt.
        """
        words = [self.cluster.python, "-c", code, *(["/stepset/agent/agent.py"] if agent else [])]
        labels = {"stepset.dev/run": RUN, "stepset.dev/group": group, "apps.kubernetes.io/pod-index": str(index)}
        labels["jobset.sigs.k8s.io/restart-attempt"] = str(more.pop("attempt", 0))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": RUN, "uid": self.job_uid, "controller": True}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {**self.cluster.pod_spec(words), **more},
        }
        self.cluster.apply(manifest, self.name)

    def restarting_pod(self, name: str, then: str, first: str = "") -> None:
        """Creates a pod whose container fails and is restarted."""
        self.pod(name, "", **two_starts(self.cluster, then, first))

    def get(self, pod: str) -> dict[str, Any]:
        return self.cluster.get(f"pod/{pod}", self.name)

    def log(self, pod: str) -> str:
        """The log of a pod's current start, by kubectl."""
        return self.cluster.kubectl("logs", pod, "-n", self.name)

    def wait_ended(self, *pods: str) -> None:
        def ended() -> bool:
            return all(self.get(pod)["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)

        self.cluster.wait(f"the end of {', '.join(pods)}", ended)

    @contextmanager
    def reader(self, pods: int, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Starts tests.cluster.log_reader, connected through the proxy."""
        words = [sys.executable, "-m", "tests.cluster.log_reader", self.kubeconfig, self.name, str(pods), *options]
        words += ["--pods-by", self.cluster.kubeconfig]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def rows(self, sources: frozenset[str] | None = None, ranks: str = "{}") -> list[bytes]:
        """The merged rows of the run, read through the proxy."""
        with connect(self.kubeconfig) as connection:
            namespaced = NamespacedClient(connection.client, self.name)
            pods = connection.call(pods_with_logs, namespaced, workload(self.job_uid, ranks), sources)
            return [row for _, rows in iterate(lambda: merged_rows(namespaced, pods, sources)) for row in rows]

    def lines(self, sources: frozenset[str] | None = None, ranks: str = "{}") -> list[LogLine]:
        parted = [row[1:].partition(b"] ") for row in self.rows(sources, ranks)]
        return [LogLine(source.decode(), text.decode("utf-8", "replace")) for source, _, text in parted]


def workload(uid: str, ranks: str = "{}") -> dict[str, Any]:
    """The part of a run's object that readers of logs need."""
    metadata = {"name": RUN, "uid": uid, "annotations": {"stepset.dev/ranks": ranks}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


def report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits until a reader has ended; returns its report."""
    out, err = process.communicate(timeout=400)
    assert (process.returncode, err) == (0, "")
    report: dict[str, Any] = json.loads(out)
    return report


def numbered(rank: int, lines: int = LINES) -> str:
    return NUMBERED.format(lines=lines, rank=rank, padding="x" * 80, pause=SECONDS * 250 / LINES)


@pytest.fixture
def place(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Namespace]:
    with proxy_to(cluster.kubeconfig, tmp_path) as (proxy, kubeconfig):
        yield Namespace(cluster, namespace, proxy, kubeconfig)


class Pieces:
    """A consumer that records the bytes of all sources."""

    def __init__(self) -> None:
        self.bytes = b""
        self.sources: set[str] = set()

    async def __call__(self, batch: Batch, position: object) -> None:
        for source, pieces in batch.raw.items():
            self.sources.add(source)
            self.bytes += b"".join(pieces)


class Blocked(Pieces):
    """A consumer that blocks in its first batch until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, batch: Batch, position: object) -> None:
        await super().__call__(batch, position)
        self.called.set()
        await self.release.wait()


class TestFollowing:
    def test_every_line_of_16_ranks_is_reported_once_over_connections_that_are_cut(
        self, place: Namespace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.proxy.cut_at_random(mean=2.0, seed=1)
        with place.reader(RANKS) as reader:
            for rank in range(RANKS):
                place.pod(f"rank-{rank}", numbered(rank), index=rank, agent=True)
            seen = report_of(reader)
        assert (seen["wrong"], seen["problems"]) == ({}, [])
        assert seen["lines"] == {f"rank {rank}": LINES for rank in range(RANKS)}
        assert seen["whole"]
        assert place.proxy.cuts > RANKS
        with capsys.disabled():
            print(f"\n{place.proxy.cuts} cuts; {seen['memory_mb']:.0f} MB more memory; {seen['cpu']:.1f} s of CPU")
        assert seen["memory_mb"] < 100

    def test_a_frozen_connection_is_detected_while_a_pod_prints(self, place: Namespace) -> None:
        with place.reader(1, "--read-timeout", "2") as reader:
            place.pod("rank-0", numbered(0, 10_000).replace("0.125", "0.25"), agent=True)
            place.cluster.wait("its log being read", lambda: place.proxy.connections > 0)
            time.sleep(3)
            assert place.proxy.freeze() > 0
            seen = report_of(reader)
        assert (seen["wrong"], seen["lines"], seen["whole"]) == ({}, {"rank 0": 10_000}, True)

    def test_a_frozen_connection_is_detected_at_a_pods_end(self, place: Namespace) -> None:
        with place.reader(1) as reader:
            place.pod("rank-0", numbered(0), agent=True)
            place.cluster.wait("its log being read", lambda: place.proxy.connections > 0)
            time.sleep(3)
            assert place.proxy.freeze() > 0
            seen = report_of(reader)
        assert (seen["wrong"], seen["lines"], seen["whole"]) == ({}, {"rank 0": LINES}, True)

    def test_waits_for_a_log_that_does_not_exist_yet(self, place: Namespace) -> None:
        settings = {"name": "settings", "configMap": {"name": "settings"}}
        spec = place.cluster.pod_spec([place.cluster.python, "-c", ""])
        early = LogPod("u", "later", "node", "node", 0, 0, "node 0", False, True, 0, False, False)
        pieces = Pieces()

        async def read() -> PodLog:
            async with client_of(place.kubeconfig) as client:
                log = PodLog(NamespacedClient(client, place.name), early, pieces, LogConnections())
                reading = asyncio.create_task(log.run())
                await asyncio.sleep(1)  # 404: no such pod
                volumes = [*spec["volumes"], settings]
                await asyncio.to_thread(place.pod, "later", "print('at last')", volumes=volumes)
                await asyncio.sleep(3)  # 400: the container waits for its volume
                make = ("create", "configmap", "settings", "-n", place.name)
                await asyncio.to_thread(place.cluster.kubectl, *make)
                await asyncio.to_thread(place.wait_ended, "later")
                log.see(log_pod(await asyncio.to_thread(place.get, "later")))
                await asyncio.wait_for(reading, 30)
                return log

        log = asyncio.run(read())
        assert (pieces.bytes, pieces.sources, log.problem) == (b"at last\n", {"node 0"}, None)

    def test_200_mb_without_a_line_end_are_read_in_bounded_memory(
        self, place: Namespace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with place.reader(1) as reader:
            place.pod("endless", ENDLESS.format(megabytes=200))
            seen = report_of(reader)
        with capsys.disabled():
            print(f"\n{seen['memory_mb']:.0f} MB more memory for 200 MB; {seen['cpu']:.1f} s of CPU")
        assert seen["bytes"] == {"node 0": 200_000_001}
        assert seen["lines"] == {"node 0": 1}
        assert seen["memory_mb"] < 60

    def test_a_slow_consumer_slows_the_reader_and_uses_no_more_memory(self, place: Namespace) -> None:
        with place.reader(2, "--slow", "0.05") as reader:
            for rank in range(2):
                place.pod(f"rank-{rank}", numbered(rank, 50_000).replace("sleep(", "sleep(0 * "), agent=True)
            seen = report_of(reader)
        assert (seen["wrong"], seen["lines"]) == ({}, {"rank 0": 50_000, "rank 1": 50_000})
        assert seen["memory_mb"] < 40

    def test_the_lines_of_a_restarted_pod_of_a_statefulset_follow_those_of_its_first_start(
        self, cluster: Cluster, namespace: str, tmp_path: Path
    ) -> None:
        code = """
            import os, sys
            attempt = int(os.environ["STEPSET_ATTEMPT"])
            for n in range(5000):
                print(attempt, n)
            sys.exit(attempt == 0)
        """
        with runs_in(cluster, namespace, tmp_path, target="statefulset") as runs:
            status, listener = runs.run(code, restart={"max_restarts": 1})
        assert status.phase is Phase.SUCCEEDED
        assert listener.texts("rank 0") == [f"{attempt} {n}" for attempt in range(2) for n in range(5000)]

    def test_a_pods_restart_may_be_reported_after_the_lines_of_its_next_start(self, place: Namespace) -> None:
        first = "for n in range(20_000): print(n)\ntime.sleep(3)"
        place.restarting_pod("again", "print('at last', flush=True); time.sleep(600)", first)
        place.cluster.wait("its first start", lambda: log_pod(place.get("again")).alive)
        early = log_pod(place.get("again"))
        assert early.restarts == 0

        async def read() -> bytes:
            blocked = Blocked()
            async with client_of(place.kubeconfig) as client:
                log = PodLog(NamespacedClient(client, place.name), early, blocked, LogConnections())
                reading = asyncio.create_task(log.run())
                await asyncio.wait_for(blocked.called.wait(), 60)
                second = lambda: "at last" in place.log("again")  # noqa: E731
                await asyncio.to_thread(place.cluster.wait, "its second start", second)
                log.reconnect()  # drops the lines of the first start that it has received but not delivered
                blocked.release.set()
                await asyncio.sleep(2)
                log.see(log_pod(await asyncio.to_thread(place.get, "again")))
                async with asyncio.timeout(120):
                    while b"at last" not in blocked.bytes:
                        await asyncio.sleep(0.1)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                return blocked.bytes

        lines = ["started False", *map(str, range(20_000)), "started True", "at last"]
        assert asyncio.run(read()).decode().splitlines() == lines

    @pytest.mark.disruptive
    def test_lines_that_are_printed_while_the_kubelet_is_down_are_read_after_its_restart(
        self, place: Namespace, testbed_choice: Choice
    ) -> None:
        with place.reader(1) as reader:
            place.pod("rank-0", numbered(0), agent=True)
            place.cluster.wait("its start", lambda: place.get("rank-0")["status"]["phase"] == "Running")
            node = faults.node_named(testbed_choice, place.get("rank-0")["spec"]["nodeName"])
            time.sleep(2)
            faults.stop_kubelet(testbed_choice, node)
            try:
                time.sleep(3)
            finally:
                faults.start_kubelet(testbed_choice, node)
            seen = report_of(reader)
        assert (seen["wrong"], seen["lines"], seen["whole"]) == ({}, {"rank 0": LINES}, True)


class TestReading:
    """`stepset logs` without --follow."""

    def test_lines_of_all_pods_are_sorted_by_time(self, place: Namespace) -> None:
        for rank in range(3):
            place.pod(f"rank-{rank}", numbered(rank, 5000), index=rank, agent=True)
        place.wait_ended("rank-0", "rank-1", "rank-2")
        place.proxy.cut_at_random(mean=1.0, seed=2)
        found = place.lines()
        stamped = [
            line.split(" ", 1)
            for rank in range(3)
            for line in place.cluster.kubectl("logs", f"rank-{rank}", "-n", place.name, "--timestamps").splitlines()
        ]
        expected = [text for _, text in sorted(stamped, key=lambda pair: pair[0])]
        assert [f"[{line.source}] {line.text}" for line in found] == expected

    def test_pods_of_earlier_attempts_are_read_first(self, place: Namespace) -> None:
        place.pod("second", "print('[rank 0] again'); exit(1)", agent=True, attempt=1)
        place.wait_ended("second")
        place.pod("first", "print('[rank 0] once'); exit(1)", agent=True, attempt=0)
        place.wait_ended("first")
        assert place.lines() == [LogLine("rank 0", "once"), LogLine("rank 0", "again")]

    def test_reads_a_restarted_container_from_its_previous_start(self, place: Namespace) -> None:
        place.restarting_pod("again", "time.sleep(60)")
        place.cluster.wait("its second start", lambda: LogLine("node 0", "started True") in place.lines())
        assert place.lines() == [LogLine("node 0", "started False"), LogLine("node 0", "started True")]

    def test_omits_the_log_that_the_kubelet_has_removed(self, place: Namespace) -> None:
        place.restarting_pod("again", "print('end')")
        place.wait_ended("again")
        assert place.lines()[-2:] == [LogLine("node 0", "started True"), LogLine("node 0", "end")]

    def test_reads_only_pods_that_may_contain_a_source(self, place: Namespace) -> None:
        for index in range(3):
            place.pod(f"node-{index}", f"print('[rank {index}] x'); print('own')", index=index, agent=True)
        place.wait_ended("node-0", "node-1", "node-2")
        place.pod("node-3", "print('y')", index=3)  # a later line is sorted after the others
        place.wait_ended("node-3")
        ranks = '{"node": [0, 1]}'
        before = place.proxy.connections
        assert place.lines(frozenset({"rank 2"}), ranks) == [LogLine("rank 2", "x")]
        assert place.lines(frozenset({"node 1", "node 3"}), ranks) == [LogLine("node 1", "own"), LogLine("node 3", "y")]
        assert place.lines(frozenset({"rank 1"})) == [LogLine("rank 1", "x")]
        assert before == 0

    def test_copies_bytes_unchanged_and_omits_events_and_progress(self, place: Namespace) -> None:
        text = b"".join(
            [
                b'[stepset] {"event": "started", "rank": 0, "local_rank": 0, "pid": 1}\n',
                b"[rank 0] a\xff\r\xfe\x00\n",
                b'[rank 0] {"stepset": {"step": 1}}\n',
                b'[rank 0] {"a": 1}\n',
                b"[rank 0+] first \n[rank 0] second\n",
                b"no head\n[rank 0] ",
            ]
        )
        place.pod("node-0", f"import os; os.write(1, {text!r})", agent=True)
        place.wait_ended("node-0")
        assert place.rows() == [
            b"[rank 0] a\xff\r\xfe\x00",
            b'[rank 0] {"a": 1}',
            b"[rank 0] first second",
            b"[node 0] no head",
            b"[rank 0] ",
        ]

    def test_a_container_without_a_log_yet_has_no_lines(self, place: Namespace) -> None:
        place.pod("waits", "print('x')", nodeSelector={"no": "such-node"})
        assert place.lines() == []
