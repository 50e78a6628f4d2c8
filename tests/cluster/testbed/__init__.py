"""A real Kubernetes cluster on one plain Linux machine, for the tests and for nothing else.

`make cluster` and `make cluster-down` call `python3 -m tests.cluster.testbed up|down`; the tests read what `up` left
behind through `handle.running()`. Standard library only, so that it runs with any Python before anything is installed.

The way of a start, file by file: `layout` (names, addresses, versions) - `packages`, `debian` and `build` (what must be
there) - `network`, `cgroups` and `process` (isolation) - `pki`, `controlplane`, `node`, `image` (Kubernetes) -
`controllers` and `manifests` (JobSet, Trainer, Kueue) - `lifecycle` (the order of all of it). `faults` and `scale` act
on a running cluster.
"""
