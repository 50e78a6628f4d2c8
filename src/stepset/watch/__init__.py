"""The state of a run, its logs and its diagnosis, independent of the backend."""
