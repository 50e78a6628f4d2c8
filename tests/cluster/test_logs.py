"""Pods' logs on a real cluster, over a network that fails: every line once, in order, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.proxy import Proxy, proxy_to
from tests.cluster.testbed.handle import Cluster

pytestmark = pytest.mark.cluster

RANKS, LINES = 16, 20_000
SECONDS = 10
"""For which a rank prints. Connections that are cut before they have brought what is printed in two seconds bring
nothing new at all: the API knows only whole seconds to go on from."""
NUMBERED = """
import sys, time
for first in range(0, {lines}, 250):
    sys.stdout.write("".join(f"[rank {rank}] {{n}} {padding}\\n" for n in range(first, first + 250)))
    sys.stdout.flush()
    time.sleep({pause})
"""


class Site:
    """A namespace, and a bad network before its API server."""

    def __init__(self, cluster: Cluster, namespace: str, proxy: Proxy, kubeconfig: str) -> None:
        self.cluster, self.namespace, self.proxy, self.kubeconfig = cluster, namespace, proxy, kubeconfig

    def pod(self, name: str, code: str, agent: bool = False, **spec: Any) -> None:
        """Makes a pod that runs some Python."""
        # What makes readers take it for a pod with the agent is where its command lies.
        words = [self.cluster.python, "-c", code, *(["/stepset/agent/agent.py"] if agent else [])]
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"stepset.dev/group": "node"}},
            "spec": {**self.cluster.pod_spec(words), **spec},
        }
        self.cluster.apply(manifest, self.namespace)

    @contextmanager
    def reader(self, pods: int, *options: str) -> Iterator[subprocess.Popen[str]]:
        """tests.cluster.log_reader behind the bad network."""
        words = [sys.executable, "-m", "tests.cluster.log_reader", self.kubeconfig, self.namespace, str(pods), *options]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def wait_for_readers(self, count: int) -> None:
        self.cluster.wait("connections", lambda: self.proxy.connections >= count)


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a reader saw, once it has ended."""
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    seen: dict[str, Any] = json.loads(out)
    return seen


@pytest.fixture
def site(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Site]:
    with proxy_to(cluster.kubeconfig, tmp_path) as (proxy, kubeconfig):
        yield Site(cluster, namespace, proxy, kubeconfig)


def numbered(rank: int, lines: int = LINES) -> str:
    return NUMBERED.format(lines=lines, rank=rank, padding="x" * 80, pause=SECONDS * 250 / LINES)


class TestFollowing:
    def test_every_line_of_16_ranks_comes_once_over_connections_that_are_cut(
        self, site: Site, capsys: pytest.CaptureFixture[str]
    ) -> None:
        site.proxy.cut_at_random(mean=2.0, seed=1)
        with site.reader(RANKS) as reader:
            for rank in range(RANKS):
                site.pod(f"rank-{rank}", numbered(rank), agent=True)
            seen = heard(reader)
        assert seen["wrong"] == {}
        assert seen["lines"] == {f"rank {rank}": LINES for rank in range(RANKS)}
        assert seen["whole"]
        assert site.proxy.cuts > RANKS
        with capsys.disabled():
            print(f"\n{site.proxy.cuts} cuts; {seen['memory_mb']:.0f} MB more memory; {seen['cpu']:.1f} s of CPU")
        assert seen["memory_mb"] < 100
