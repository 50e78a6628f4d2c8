"""Confines the ports of a local run to this machine.

If the system does not allow this, stepset adds a note to the run's status. The note lists the ports that other hosts
can reach.
"""
