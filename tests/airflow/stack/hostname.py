"""The host name that Airflow uses: here a different one for each component, so that tests can identify triggerers.

Airflow imports it, as [core] hostname_callable requires; each component calls it when it starts.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "STACK_COMPONENT"


def hostname() -> str:
    """The component's name."""
    name = os.environ.get(VARIABLE, "localhost")
    if name == "scheduler":
        # The scheduler forks its workers and all tasks: import once what all of them need.
        importlib.import_module("airflow.providers.cncf.kubernetes.hooks.kubernetes")
    return name
