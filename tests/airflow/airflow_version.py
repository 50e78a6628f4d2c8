"""The minor version of the installed Airflow. A later minor runs the tests of the earlier ones, and may fail them."""

from __future__ import annotations

from importlib.metadata import version

from packaging.version import Version

AIRFLOW_3_4 = Version(version("apache-airflow")).release >= (3, 4)
"""Whether Airflow is 3.4 or later: it has loops, and a row for each try of a task instance."""
