"""The ports of a local run: they accept connections from this machine only, or the run lists them before its start."""
