"""Several gradients on one sample: of the whole batch, of a part, over microbatches."""
