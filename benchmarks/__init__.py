"""Experiments and measurements, run from the repository's root: ``python -m benchmarks.studies convex``."""
