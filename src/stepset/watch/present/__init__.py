"""The records that every interface shows of a run, their sentences, and which of them are new (presenting.md)."""
