"""Running cells in this process: what computes them, in which calls, on which threads."""
