"""From LaunchPlan to what a cluster understands."""
