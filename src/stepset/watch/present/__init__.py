"""The records that interfaces show of a run, their sentences, and the selection of new records (presenting.md)."""
