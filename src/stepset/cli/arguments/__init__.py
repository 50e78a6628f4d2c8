"""The arguments and flags of the commands, and functions that read the job of a command line."""
