"""Watches the objects of runs. If the watches send no data, checks whether the server answers."""
