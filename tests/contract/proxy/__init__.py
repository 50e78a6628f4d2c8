"""A TLS-terminating reverse proxy in front of an API server that injects faults into HTTP.

`python -m tests.contract.proxy` runs it as a process; `tests.contract.gates` starts and controls it.
tests/cluster/proxy.py breaks TCP connections; this one parses requests, so it can refuse one kind of request, end one
watch or replace one object.
"""
