"""The functions that pipeline authors call. These functions run when a pipeline is compiled."""
