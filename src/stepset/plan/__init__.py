"""The `LaunchPlan` of a job: the command, variables and files of every pod, and the reason for each variable."""
