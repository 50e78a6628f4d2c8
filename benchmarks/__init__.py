"""Benchmarks that compare stepset with the tools that users would use instead. `make bench` runs all of them."""
