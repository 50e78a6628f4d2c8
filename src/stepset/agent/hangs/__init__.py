"""Detects that the ranks of a pod make no progress, and reports their stacks and collectives: docs/design/hangs.md."""
