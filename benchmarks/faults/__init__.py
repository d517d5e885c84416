"""Faults, in numbers: what was tried, what survived it, what was lost."""
