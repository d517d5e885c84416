"""How often a fault was tried, and how it ended."""

from collections import Counter
from typing import NamedTuple


class Count(NamedTuple):
    """A row of the table.

    Attributes:
      fault: What went wrong.
      what: To whom.
      tried: How often.
      lost: How often it ended with a result that is wrong or missing, and not a word about it.
      ended: How the others ended.
    """

    fault: str
    what: str
    tried: int
    lost: int
    ended: str


LOST = "lost"


def count(fault: str, what: str, outcomes: list[str]) -> Count:
    """Counts outcomes, each a few words; ``LOST`` is the bad one."""
    found = Counter(outcomes)
    lost = found.pop(LOST, 0)
    ended = ", ".join(f"{number} {outcome}" for outcome, number in found.most_common())
    return Count(fault, what, len(outcomes), lost, ended)
