"""LaunchPlan: the command, variables and files of every pod, and the reason for each variable."""
