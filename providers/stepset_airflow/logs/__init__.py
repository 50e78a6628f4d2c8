"""The task log: a run's lines and reports, and the lines that an earlier triggerer wrote."""
