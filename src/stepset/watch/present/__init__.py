"""Records that interfaces show of a run, their sentences, and the selection of new ones (docs/design/presenting.md)."""
