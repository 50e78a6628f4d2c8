"""One distributed training as one step."""

from .component import distributed_train

__all__ = ["distributed_train"]
