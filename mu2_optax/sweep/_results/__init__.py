"""What the cells gave: while they run, as arrays, and on disk."""
