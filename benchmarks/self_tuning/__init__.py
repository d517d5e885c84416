"""Is it true on anything? Self-tuning optimizers and their peers on many kinds of tasks."""
