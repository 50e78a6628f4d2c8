"""What every interface reports of a run: the records, their sentences, and which of them are new (presenting.md)."""
