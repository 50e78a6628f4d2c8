"""Writes, reads and follows the logs of a local run, and selects lines by time and attempt."""
