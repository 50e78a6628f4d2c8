"""The program of a distributed component's ranks, and the files that they exchange with the step."""
