"""Modules for triggers: the shared informer, the log lease, work that continues despite cancellation."""
