"""Measurements, run from the repository root: ``python -m benchmarks.studies convex``."""
