"""Runs Kubeflow Pipelines and Argo Workflows, built from source, on the test cluster. The command is tools/kfp-backend.

`layout` contains names, addresses and versions. When the backend starts, the other modules are used in this order:

- `sources` finds the source directories, and `changes` modifies copies of these directories.
- `build` builds the Go programs.
- `images` and `objects` create the images and the Kubernetes objects.
- `services` starts the processes that run beside the control plane. `mlmd_server` is one of these processes.
- `lifecycle` starts and removes the backend.
"""
