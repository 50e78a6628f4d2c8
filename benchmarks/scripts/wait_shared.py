"""Waits for all runs of a namespace with one set of watches: KUBECONFIG NAMESPACE COUNT OUT."""

from __future__ import annotations

import sys
import time
from typing import Any

from samples import Samples

from stepset.backends.kubernetes.client import Connection, connect
from stepset.backends.kubernetes.shared_watch import NamespaceWatch
from stepset.backends.kubernetes.site import Site


def main(kubeconfig: str, namespace: str, count: str, out: str) -> None:
    """Writes what it costs; ends when so many runs are over."""
    samples = Samples(out)

    class Counted(Connection):
        def _send(self, *args: Any, **options: Any) -> Any:
            samples.requests += 1
            return super()._send(*args, **options)

    plain = connect(kubeconfig)
    site = Site(Counted(plain._api, plain.namespace), namespace)
    over: set[str] = set()
    with NamespaceWatch(site) as watch:
        while len(over) < int(count):
            samples.tick()
            changed = watch.take(1.0)
            now = time.time()
            for run in changed - over if watch.complete else ():
                status = watch.status(run, now)
                if status is not None and status.phase.final:
                    over.add(run)
                    samples.ended(run)
        samples.tick()


if __name__ == "__main__":
    main(*sys.argv[1:])
