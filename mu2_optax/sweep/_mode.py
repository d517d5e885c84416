"""Which way a metric is better."""

from typing import Literal

Mode = Literal["min", "max"]
_BETTER_HIGH = ("accuracy", "score", "reward", "auc", "f1", "r2")


def metric_mode(metric: str, mode: str | None = None) -> Mode:
    """Whether a metric is better low (``"min"``) or high (``"max"``).

    Names that contain "accuracy", "score", "reward", "auc", "f1" or "r2" are better high, all
    others low.

    Args:
      metric: The metric's name.
      mode: The answer, if it is known.

    Returns:
      ``mode``, or a guess from the name.

    Examples:
      >>> metric_mode("test_accuracy"), metric_mode("train_loss")
      ('max', 'min')
    """
    if mode is None:
        return "max" if any(word in metric.lower() for word in _BETTER_HIGH) else "min"
    if mode not in ("min", "max"):
        raise ValueError(f"`mode` must be 'min', 'max' or None, got {mode!r}.")
    return "max" if mode == "max" else "min"
