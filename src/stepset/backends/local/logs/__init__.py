"""The logs of a local run: writing, reading and following them, and selecting lines by time and attempt."""
