"""Directory trees that exceed the recursion limit of Python, and the longest path of the system."""

from __future__ import annotations

import os
from pathlib import Path

DEEP = 1500
"""More levels than Python's recursion limit."""
PROGRAM = f"""
import os

def deep(directory):
    fd = os.open(directory, os.O_RDONLY)
    for _ in range({DEEP}):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
"""
"""The source of a function like `make_deep`, for the training code of a job."""


def make_deep(directory: Path, levels: int = DEEP, name: str = "d") -> None:
    """Creates a directory in a directory, a directory in the new directory, and so on."""
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
