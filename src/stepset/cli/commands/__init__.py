"""The commands of `stepset`."""
