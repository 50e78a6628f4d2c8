"""The state of a run, its logs and its diagnosis. The modules do not depend on a backend."""
