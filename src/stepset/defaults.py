"""Default values, and the names of the job file's fields, for every interface."""

from __future__ import annotations

TARGET = "jobset"
"""The kind of workload that a new run on a cluster has by default."""

STARTUP_TIMEOUT = 1800
"""The number of seconds within which all pods must run after the admission or a restart of a run: 30 minutes."""

JOB_FIELDS = (
    "name", "framework", "num_nodes", "procs_per_node", "image", "script", "module", "command", "function", "args",
    "code", "requirements", "env", "resources_per_node", "storage", "checkpoint_dir", "roles", "restart", "hang",
    "deadline", "termination_grace_period", "ttl", "scheduling", "network", "service_account", "security", "labels",
    "annotations", "pod_template", "agent",
)  # fmt: skip
"""The fields of a job file, in the order of `stepset.spec.job.TrainingJob`."""

ENTRIES = ("script", "module", "command", "function")
"""The fields that define the program."""

LIST_FIELDS = ("command", "args", "requirements", "storage", "roles")
"""The fields whose values are lists."""

MAPPING_FIELDS = (
    "env", "resources_per_node", "restart", "scheduling", "network", "labels", "annotations", "pod_template",
)  # fmt: skip
"""The fields whose values are mappings. `framework`, `code` and `hang` also accept text."""
