"""What the ranks of a distributed component run, and the files that they exchange with the step."""
