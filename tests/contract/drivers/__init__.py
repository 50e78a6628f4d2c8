"""Programs that follow a run through one interface each, and report to the test what its user sees."""
