"""A component that runs one distributed training as one step of a pipeline."""

from .component import distributed_train

__all__ = ["distributed_train"]
