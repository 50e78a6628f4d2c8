"""The agent: the program that starts and supervises the training command in every pod and every local node.

The agent uses only the standard library of Python 3.8. tools/build_agent.py builds the file built/agent.py from this
package. docs/design/agent.md describes the modules, the build and the agent's behaviour.
"""

from __future__ import annotations

from pathlib import Path

BUILT_FILE = Path(__file__).parent / "built" / "agent.py"
"""The file that runs in pods and local nodes."""
