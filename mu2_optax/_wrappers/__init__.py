"""Wrappers around any optimizer: freezing, rejecting, steps of several calls, a trial run."""
