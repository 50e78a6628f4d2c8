"""The Kubernetes API client: configuration, requests, replies and the event loop of synchronous callers."""
