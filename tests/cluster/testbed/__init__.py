"""A real Kubernetes cluster on one Linux machine, for tests only.

`make cluster` and `make cluster-down` call `python3 -m tests.cluster.testbed up|down`; the tests get the cluster that
`up` started from `handle.find()`. `up` and `down` use the standard library only, so they run with any Python before
anything is installed.

The modules, in the order in which a start uses them: `layout` (names, addresses, versions) - `packages`, `debian` and
`build` (requirements) - `network`, `cgroups` and `process` (isolation) - `pki`, `controlplane`, `node`, `image`
(Kubernetes) - `controllers` and `manifests` (JobSet, Trainer, Kueue) - `lifecycle` (the order of all steps). `faults`,
`outages` and `scale` act on a running cluster.
"""
