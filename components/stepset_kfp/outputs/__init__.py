"""Writes the outputs of a step: its artifacts, its output parameters and its report."""
