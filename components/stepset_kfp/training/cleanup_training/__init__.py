"""A step that ends what a pipeline's run has left, for exit handlers."""
