"""What a cluster would refuse, reported in terms of the job file before anything is sent."""
