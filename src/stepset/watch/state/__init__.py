"""What both backends use to determine the state of a run. The modules use no I/O and no clock."""
