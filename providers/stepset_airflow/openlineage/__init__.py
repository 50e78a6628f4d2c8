"""Reports runs to OpenLineage."""
