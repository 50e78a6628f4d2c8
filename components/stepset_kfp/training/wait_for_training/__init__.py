"""A step that completes when a training started elsewhere does."""
