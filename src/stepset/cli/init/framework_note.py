"""Creates a note about a script that imports the library of a framework other than torch, if no framework is given."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from stepset.cli.arguments.job_input import JobInput
from stepset.cli.init.detect import detect
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.spec.options import MODELS, NodeLaunched

_LIMIT = 1 << 20


def framework_note(given: JobInput) -> str | None:
    """Returns a note if no framework is given, and the script imports the library of a framework other than torch.

    Each rank of such a script would run alone, for example as `rank 0 of 1`. Returns None if the job has only one rank,
    or if the script cannot be read as Python.
    """
    job = given.job
    if job.script is None or "framework" in job.model_fields_set or given.plan.world.size == 1:
        return None
    code = job.code if isinstance(job.code, str) else ""
    path = given.base_dir / code / job.script
    try:
        found = detect(ast.parse(read_regular(Path(os.path.realpath(path)), _LIMIT) or b""))
    except (OSError, ChangedError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    # torchrun, which starts the ranks of such a job, connects the ranks of frameworks that have launchers in the nodes.
    if not found.module or issubclass(MODELS[found.framework], NodeLaunched):
        return None
    return f"{job.script} imports {found.module}; use --framework {found.framework}, or each rank runs alone"
