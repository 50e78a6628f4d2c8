"""Reads Kueue's Workloads, their positions in queues, and the changes that Kueue requires before it admits them."""
