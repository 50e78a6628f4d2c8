"""From LaunchPlan to what a cluster understands: one file for each target, and what they share."""
