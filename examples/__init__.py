"""Scripts to start from, run from the repository's root: ``python -m examples.mnist_cnn``."""
