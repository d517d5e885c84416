"""The paper: its weights, the estimate d, and the averaging of w into x."""
