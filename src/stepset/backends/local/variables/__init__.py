"""Determines variables that local nodes need in addition to the plan's variables.

These variables select the GPUs of each node, and set options of MPI.
"""
