"""Modules that write the output of a run to the task log, and read the lines that an earlier triggerer wrote."""
