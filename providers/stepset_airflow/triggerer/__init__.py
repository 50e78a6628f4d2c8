"""What triggers need beside the core: a shared informer, the log lease, work that survives cancellation."""
