"""The parts of the state of one run, and the index of the objects of all runs."""
