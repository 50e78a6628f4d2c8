"""Names of runs for the shell's completion."""

from __future__ import annotations

from stepset.errors import StepsetError


def run_names(incomplete: str) -> list[str]:
    """The names of known runs that begin so, the newest first; nothing where runs cannot be listed."""
    from stepset.backends import backend_of

    try:
        runs = backend_of("local").list()
    except (StepsetError, OSError):
        return []  # a message would land in the middle of the user's command line
    names = [run.name for run in sorted(runs, key=lambda r: r.created, reverse=True)]
    return [name for name in names if name.startswith(incomplete)]
