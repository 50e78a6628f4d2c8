"""Where a plan runs: as processes on this machine, or on Kubernetes."""
