"""The environment with the tools of a release (`make setup-tools`)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".venvs/tools/bin"
