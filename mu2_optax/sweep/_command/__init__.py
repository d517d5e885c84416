"""The command ``mu2-sweep``."""
