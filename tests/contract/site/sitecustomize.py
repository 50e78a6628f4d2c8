"""Installs the guard of the event loop in a process of the contract suite; Python imports this module at startup."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("STEPSET_CONTRACT_GUARD"):
    # Imported by its path, because the repository may not be on the process's module path.
    _spec = importlib.util.spec_from_file_location("stepset_contract_guard", Path(__file__).parents[1] / "guard.py")
    assert _spec is not None and _spec.loader is not None
    _guard = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = _guard
    _spec.loader.exec_module(_guard)
    _guard.watch_this_process()
