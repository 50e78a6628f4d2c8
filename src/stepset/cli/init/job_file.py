"""Creates the content of a new job file."""

from __future__ import annotations

import json
import re

from stepset.cli.init.detect import Detected

_PLAIN_WORD = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*\.py|[./]+")


def script_lines(script: str) -> str:
    """Returns the lines for a script. The path of the script is relative to the directory of the job file."""
    return f"script: {_quoted(script)}\n# code: .  # ships this directory; script is then relative to it"


def module_lines(module: str, code: str) -> str:
    """Returns the lines for a module.

    Args:
        code: the directory of the module's top-level package, relative to the directory of the job file.
    """
    ignored = "# List data, checkpoints and outputs in .stepsetignore (or .gitignore), so that they are not shipped."
    return f"module: {module}\ncode: {_quoted(code)}  # this directory is shipped\n{ignored}"


def job_file_text(program: str, detected: Detected, num_nodes: int, procs_per_node: int) -> str:
    """Returns the content of a job file with comments.

    Args:
        program: the result of `script_lines` or `module_lines`.
    """
    why = f"the program imports {detected.module}" if detected.module else "the program imports no framework"
    return f"""\
# A job of stepset: `stepset run` with this file runs it on this machine, with --backend kubernetes on a cluster.
# Fields: docs/job-file.md; `stepset schema` prints the JSON Schema.
{program}
# args: ["--epochs", "3"]

# {why[0].upper()}{why[1:]}; {detected.needs}.
framework: {detected.framework}
num_nodes: {num_nodes}  # pods, or simulated nodes on this machine
procs_per_node: {procs_per_node}  # a number; or auto, from the resources

# For a cluster:
# image: registry.example/train:1
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


def _quoted(path: str) -> str:
    return path if _PLAIN_WORD.fullmatch(path) else json.dumps(path, ensure_ascii=False)
