"""A task's run: creates it or finds it again, follows it, ends it."""
