"""The task log: what it shows of a run, and what an earlier triggerer has written to it."""
