"""The agent: the program that runs around the training command in every pod and every local node.

Standard library only, Python 3.8. tools/build_agent.py builds the one file that is shipped, built/agent.py, from the
modules of this package; docs/design/agent.md describes the modules, the build and the agent's behaviour.
"""

from __future__ import annotations

from pathlib import Path

BUILT_FILE = Path(__file__).parent / "built" / "agent.py"
"""The file that runs in pods and local nodes."""
