"""Follows the logs of a namespace's pods in a separate process, whose memory can be measured.

    python -m tests.cluster.log_reader KUBECONFIG NAMESPACE PODS --pods-by KUBECONFIG [--read-timeout S] [--slow S]

Ends when PODS pods have ended, and prints JSON: for each source the number of bytes and lines, the first line `n ...`
whose number did not follow the previous one, and the memory and CPU time used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections import Counter

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.logs.pods import log_pod
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs


class LineChecker:
    """Counts and checks the lines, without keeping them."""

    def __init__(self, slow: float) -> None:
        self._slow = slow
        self.lines: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.wrong: dict[str, str] = {}
        self.events: Counter[str] = Counter()

    async def __call__(self, output: PodOutput) -> None:
        batch = output.batch
        for head, text in batch.lines:
            source, expected = head.source, self.lines[head.source]
            if not batch.parts and text.partition(b" ")[0] != b"%d" % expected:
                self.wrong.setdefault(source, f"{text[:40]!r} instead of {expected}")
            self.lines[source] += not head.continues
        for source, pieces in batch.raw.items():
            self.bytes[source] += sum(map(len, pieces))
        for event in batch.events:
            self.events[event["event"]] += 1
        await asyncio.sleep(self._slow)


def main() -> None:
    """Reads until the end, and prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig")
    parser.add_argument("namespace")
    parser.add_argument("pods", type=int)
    parser.add_argument("--pods-by", required=True, help="the kubeconfig for listing pods, not for their logs")
    parser.add_argument("--read-timeout", type=float, default=120.0)
    parser.add_argument("--slow", type=float, default=0.0)
    given = parser.parse_args()
    json.dump(asyncio.run(read(given)), sys.stdout)


async def read(given: argparse.Namespace) -> dict[str, object]:
    """Reads until the pods have ended; returns the report."""
    checker = LineChecker(given.slow)
    async with client_of(given.kubeconfig) as client, client_of(given.pods_by) as pods_client:
        logs = RunLogs(NamespacedClient(client, given.namespace), checker, read_timeout=given.read_timeout)
        ended: set[str] = set()
        basis = _peak()
        while len(ended) < given.pods:
            await asyncio.sleep(0.3)
            for pod in (await pods_client.get(f"/api/v1/namespaces/{given.namespace}/pods")).body["items"]:
                logs.see([log_pod(pod)])
                if pod["status"]["phase"] in ("Succeeded", "Failed"):
                    ended.add(pod["metadata"]["uid"])
        ended_at = time.monotonic()
        whole = await logs.finish(120)
        await logs.close()
    return {
        "whole": whole,
        "problems": logs.problems,
        "lines": checker.lines,
        "bytes": checker.bytes,
        "wrong": checker.wrong,
        "events": checker.events,
        "last_lines_after": time.monotonic() - ended_at,
        "memory_mb": _peak() - basis,
        "cpu": time.process_time(),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
