"""The program that installs the Python requirements of a job, in pods and on this machine.

The program uses only the standard library and supports Python 3.8, because images can contain old versions of Python.
"""

from __future__ import annotations

from pathlib import Path

PROGRAM_FILE = Path(__file__).parent / "install.py"
"""The path of the program. Pods that need the program mount it from a ConfigMap."""
