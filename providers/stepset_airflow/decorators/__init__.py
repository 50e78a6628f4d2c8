"""The TaskFlow decorator that runs a function as a distributed training."""
