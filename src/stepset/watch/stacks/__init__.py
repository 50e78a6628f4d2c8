"""The stacks of a run's ranks: their model, the reader of the agents' documents, and groups of equal stacks."""
