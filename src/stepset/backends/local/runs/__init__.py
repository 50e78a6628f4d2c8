"""The directories of runs. Reads and writes single runs, finds all runs of a user, and reads settings."""
