"""Lets `python -m stepset` run the `stepset` command in the environment of this interpreter."""

from __future__ import annotations

import sys

from stepset.cli import main

if __name__ == "__main__":
    sys.exit(main())
