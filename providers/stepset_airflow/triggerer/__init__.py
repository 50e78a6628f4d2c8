"""Modules that triggers use in a triggerer, such as the shared informer and the lease on a task's log."""
