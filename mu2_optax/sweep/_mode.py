"""Which way a metric is better."""

import re
from typing import Literal

Mode = Literal["min", "max"]

_HIGH = """
    accuracy acc auc auroc f1 r2 top1 top5 precision recall bleu rouge iou miou dice psnr ssim
    reward rewards return returns
"""
_LOW = """
    loss losses error errors err perplexity ppl nll mse mae rmse regret brier fid wer cer
"""
# What may follow the word that tells: loss_mean, accuracy_at_5, error_rate, f1_macro.
_BESIDES = """
    train training test testing val valid validation eval dev holdout mean avg average median
    final last best rate value curve macro micro weighted at per sample token step epoch k
"""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+")


def metric_mode(metric: str, mode: str | None = None) -> Mode:
    """Whether a metric is better low (``"min"``) or high (``"max"``).

    The name tells, by whole words (``val_acc``, ``test-loss``, ``topFiveError``), if its last word
    is a well-known one: accuracy, AUC, F1, R2, BLEU, IoU, reward, return or score are better high,
    loss, error, perplexity, NLL, MSE or regret low. The last one counts, because it is what the
    others describe: ``reward_model_loss`` is a loss. After it may come what does not change its
    meaning, such as "mean" in ``loss_mean``.

    Args:
      metric: The metric's name.
      mode: The answer, if it is known.

    Returns:
      ``mode``, or what the name tells.

    Raises:
      ValueError: If the name does not tell.

    Examples:
      >>> metric_mode("test_accuracy"), metric_mode("reward_model_loss")
      ('max', 'min')
    """
    if mode not in ("min", "max", None):
        raise ValueError(f"`mode` must be 'min', 'max' or None, got {mode!r}.")
    found = told_by(metric) if mode is None else mode
    if found is None:
        raise ValueError(
            f"whether {metric!r} is better high or low is not told by its name; say so with "
            '`mode="min"` or `mode="max"` (on the command line, --better low or --better high).'
        )
    return "max" if found == "max" else "min"


def told_by(metric: str) -> Mode | None:
    """What a name tells, from its last word backwards; None if it tells nothing."""
    guess: Mode | None = None
    for word in reversed(_WORD.findall(metric)):
        for form in (word.lower(), word.lower().rstrip("0123456789")):
            if form in _LOW.split():
                return "min"
            if form in _HIGH.split():
                return "max"
        if form in ("score", "scores"):
            guess = "max"  # unless it is the score of something low: brier_score
        elif form and form not in _BESIDES.split():
            break
    return guess
