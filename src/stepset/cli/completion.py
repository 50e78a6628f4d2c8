"""Names of runs for the shell's completion."""

from __future__ import annotations

from stepset.errors import StepsetError


def run_names(incomplete: str) -> list[str]:
    """Known runs whose names start with `incomplete`, the newest first; none if runs cannot be listed."""
    from stepset.backends import backend_of

    try:
        runs = backend_of("local").list()
    except (StepsetError, OSError):
        return []  # a message would appear in the middle of the user's command line
    names = [run.name for run in sorted(runs, key=lambda r: r.created, reverse=True)]
    return [name for name in names if name.startswith(incomplete)]
