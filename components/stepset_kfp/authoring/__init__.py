"""The functions that pipeline authors call; they run when a pipeline is compiled."""
