"""Pod logs: one pod's log, the logs of a run, and merging them by time."""
