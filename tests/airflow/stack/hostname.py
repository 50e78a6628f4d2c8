"""What Airflow calls the machine it runs on: here each triggerer has one of its own, to be told apart by.

Airflow imports it, as [core] hostname_callable says.
"""

from __future__ import annotations

import os

VARIABLE = "STACK_COMPONENT"


def hostname() -> str:
    """The component's name."""
    return os.environ.get(VARIABLE, "localhost")
