"""What to do when a block does not fit into memory."""

from mu2_optax.sweep._layout import Layout


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of XLA, or of Python, means that memory ran out."""
    text = str(error)
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text


def explain_out_of_memory(error: BaseException, layout: Layout, shape: tuple[int, ...]) -> str:
    """Says what did not fit and which ``chunk_size`` to try: half the lanes of this run.

    Args:
      error: The error.
      layout: The layout that did not fit.
      shape: The shape of the grid.

    Returns:
      The message.
    """
    grid = " x ".join(str(length) for length in shape)
    what = f"out of memory with {layout.lanes} cells side by side, of a grid of {grid}"
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    if layout.lanes == 1:
        return f"{what}: a single cell does not fit ({first}); make `train` smaller."
    return (
        f"{what} ({first}); try `chunk_size={layout.lanes // 2}`, and halve it again until it fits."
    )
