"""Displays runs, lists of runs and log lines in notebook cells."""
