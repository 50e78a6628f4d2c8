"""Reads the log of one pod or of all pods of a run, and merges logs by time."""
