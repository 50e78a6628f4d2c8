"""One task's run: created or found again, followed, ended."""
