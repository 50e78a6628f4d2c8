"""The client of the Kubernetes API: configuration, requests, replies, and the event loop for synchronous callers."""
