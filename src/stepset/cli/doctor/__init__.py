"""The checks that `stepset doctor` performs on this machine and on a cluster."""
