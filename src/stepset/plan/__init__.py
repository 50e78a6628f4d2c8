"""What every pod gets, and why: LaunchPlan and the values in it."""
