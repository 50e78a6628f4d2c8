"""OpenLineage events of a training."""
