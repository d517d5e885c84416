"""Running the same calls elsewhere: a pool of processes, or a cluster."""
