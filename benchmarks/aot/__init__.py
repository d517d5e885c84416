"""What accelerators' own compilers make of a step, ahead of time and without an accelerator."""
