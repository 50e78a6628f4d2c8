"""Creates the content of a new job file."""

from __future__ import annotations

import json
import re

from stepset.cli.init.detect import Detected

_PLAIN_WORD = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*\.py")


def job_file_text(script: str, detected: Detected, num_nodes: int, procs_per_node: int) -> str:
    """Returns the content of a job file with comments. `script` is relative to the directory of the job file."""
    why = f"the script imports {detected.module}" if detected.module else "the script imports no framework"
    quoted = script if _PLAIN_WORD.fullmatch(script) else json.dumps(script, ensure_ascii=False)
    return f"""\
# A job of stepset: `stepset run` with this file runs it on this machine, with --backend kubernetes on a cluster.
# Fields: docs/job-file.md; `stepset schema` prints the JSON Schema.
script: {quoted}
# args: ["--epochs", "3"]

# {why[0].upper()}{why[1:]}; {detected.needs}.
framework: {detected.framework}
num_nodes: {num_nodes}  # pods, or simulated nodes on this machine
procs_per_node: {procs_per_node}  # a number; or auto, from the resources

# For a cluster:
# image: registry.example/train:1
# code: .  # ships this directory; script is then relative to it
# resources_per_node: {{cpu: 4, memory: 16Gi, gpus: 1}}
# env:
#   LR: "0.1"
#   HF_TOKEN: {{secret: hub, key: token}}

# A directory that outlives the run. STEPSET_CHECKPOINT_DIR has its path; STEPSET_RESUME_FROM, too, if it contains a
# checkpoint.
# checkpoint_dir: /ckpt/NAME
# restart: {{max_restarts: 3}}  # starts all ranks again after a failure
# deadline: 12h
"""
