"""The commands of benchmarks, run in the process of the test."""

import sys


def call(module, monkeypatch, *options):
    """Runs a module as its command does, but leaves the process its way to allocate memory."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, options)])
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None, raising=False)
    module.main()
