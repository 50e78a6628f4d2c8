"""Contains the names that options have in each interface. Error messages and notes use these names."""

from __future__ import annotations

from typing import Literal

Interface = Literal["cli", "python", "airflow", "kfp"]


def list_call(interface: Interface) -> str:
    """Returns the command that lists the runs, or the Python call."""
    return "stepset.list_runs()" if interface == "python" else "'stepset list'"


def fresh_option(interface: Interface) -> str:
    """Returns the option to ignore existing checkpoints. Returns "" if the interface has no such option."""
    return {"cli": "--fresh", "python": "fresh=True"}.get(interface, "")


def option(interface: Interface, name: str, value: str = "") -> str:
    """Returns the name of a cluster option in an interface. If `value` is given, the result also contains the value.

    >>> option("cli", "startup_timeout"), option("cli", "target", "job")
    ('--startup-timeout', '--target job')
    >>> option("python", "startup_timeout"), option("python", "target", "job")
    ('cluster.startup_timeout', "ClusterOptions(target='job')")
    >>> option("airflow", "startup_timeout"), option("kfp", "target", "job")
    ('startup_timeout', "target='job'")

    Args:
        interface: the interface of the caller.
        name: the name of a field of ClusterOptions.
        value: the value of the option. If `value` is empty, the result contains only the name.
    """
    if interface == "cli":
        flag = f"--{name.replace('_', '-')}"
        return f"{flag} {value}" if value else flag
    if interface == "python":
        return f"ClusterOptions({name}={value!r})" if value else f"cluster.{name}"
    return f"{name}={value!r}" if value else name
