"""stepset's budgets, measured side by side with what a user would pick instead. `make bench` runs them all."""
