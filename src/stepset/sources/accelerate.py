"""Detects code that uses Hugging Face Accelerate on CPUs without the variable that connects its ranks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stepset.plan.code import script_in_code
from stepset.sources.siblings import imported_names
from stepset.spec.job import TrainingJob

ACCELERATE_CPU = "ACCELERATE_USE_CPU"
"""The variable that makes Accelerate connect its ranks on CPUs."""


def alone_on_cpus(job: TrainingJob, code_dir: Path, function_file: str) -> tuple[str, ...]:
    """Returns a note if the job imports Accelerate, because without GPUs each rank then trains alone.

    Without GPUs, `Accelerator()` uses the process group only if ACCELERATE_USE_CPU is set, or with the argument `cpu`
    (accelerate 1.15, state.py, `PartialState._prepare_backend`).

    Args:
        code_dir: the directory of the job's script.
        function_file: the path of the file that defines the job's function, or "".
    """
    texts = [(job.function or "").encode()]
    with suppress(OSError):
        if file := code_dir / script_in_code(job) if job.script else function_file:
            texts.append(Path(file).read_bytes())
    imported = {name[0] for text in texts if b"accelerate" in text for name in imported_names(text, ())}
    if "accelerate" not in imported or any(b"cpu=True" in text for text in texts):
        return ()
    return (f"accelerate: without GPUs, each rank trains alone unless {ACCELERATE_CPU} is true; add it to env",)
