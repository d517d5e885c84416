"""What the parts of a report share."""

from html import escape

from mu2_optax.sweep._plots import COLORS, LINES

STYLES = len(COLORS) * len(LINES)  # the style sheet has a class for each, s0, s1, ...


def in_words(metric: str) -> str:
    """A metric's name as text of the page."""
    return escape(metric.replace("_", " "))


def as_heading(metric: str) -> str:
    """The same with a capital letter.

    Examples:
      >>> as_heading("test_AUC")
      'Test AUC'
    """
    return in_words(metric[:1].upper() + metric[1:])


def count(number: int, thing: str) -> str:
    """A number of things.

    Examples:
      >>> count(1, "seed"), count(3, "seed")
      ('1 seed', '3 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
