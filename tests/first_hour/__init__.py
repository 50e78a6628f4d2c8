"""What a new user does in the first hour, with the installed programs."""
