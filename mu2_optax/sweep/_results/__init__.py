"""What the cells returned: while they run, as arrays, and on disk."""
