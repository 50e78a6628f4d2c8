"""What Airflow calls the machine it runs on: here each triggerer has one of its own, to be told apart by.

Airflow imports it, as [core] hostname_callable says, and asks each component when it starts.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "STACK_COMPONENT"


def hostname() -> str:
    """The component's name."""
    name = os.environ.get(VARIABLE, "localhost")
    if name == "scheduler":
        # Its workers are forked from it, and so is each task: what all of them need is imported once.
        importlib.import_module("airflow.providers.cncf.kubernetes.hooks.kubernetes")
    return name
