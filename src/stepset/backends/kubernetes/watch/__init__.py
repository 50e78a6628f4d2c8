"""Watches: reflectors of collections, the informer of a run or a namespace, and the server liveness check."""
