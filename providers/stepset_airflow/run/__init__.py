"""The run of a task: its creation or reattachment, its observation, and its end."""
