"""The state of a run, its logs and its diagnosis; knows no backend."""
