"""`python -m benchmarks [GROUP ...]`: runs groups of benchmarks and prints the table of docs/benchmarks.md."""

from __future__ import annotations

import importlib
import sys

GROUPS = (
    "plans",
    "render",
    "startup",
    "agent_start",
    "hang_steps",
    "airflow_import",
    "local_run",
    "logs",
    "cluster_logs",
    "submit",
    "watching",
    "scale",
    "finished",
    "interrupts",
)


def main(names: list[str]) -> int:
    """Runs the groups with the given names, or all groups if there are no names, and returns the exit code.

    The exit code is 2 if a name is unknown.
    """
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        sys.stderr.write(f"unknown benchmark {unknown[0]!r}; the benchmarks are {', '.join(GROUPS)}\n")
        return 2
    print("| what | measured | budget | met |\n|---|---|---|---|")
    for name in names or GROUPS:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
