"""One distributed training as one step."""
