"""The number of examples of tests of parsers."""

from __future__ import annotations

import os

from hypothesis import settings

FUZZED = settings(deadline=None, max_examples=int(os.environ.get("STEPSET_EXAMPLES", "300")))
"""Some hundred examples; STEPSET_EXAMPLES=10000 tests that many inputs of each parser."""
