"""How a line looks: each label has its colour, in every picture and on every page.

The optimizers of this package and their peers have colours of their own. Another label's colour
depends on the label alone, unless another line of the same picture has it: then it gets the next.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

# On light, and on dark. The first seven on light are Okabe and Ito's, which people with any colour
# vision can tell apart; all others are chosen to be as far apart as possible.
COLORS = {
    "#d55e00": "#cf630d", "#cc79a7": "#b167ab", "#009e73": "#009342", "#0072b2": "#3991b7",
    "#000000": "#ebebeb", "#56b4e9": "#48d7fe", "#e69f00": "#fab72a", "#de297b": "#fda9b5",
    "#57288f": "#e573ff", "#6180fe": "#7472f4", "#26541c": "#88fca4", "#907d5e": "#ada052",
    "#8a0700": "#f94173",
}  # fmt: skip
# The labels that have a colour of their own, and the dashes and marker of each.
_KNOWN = {
    "mu2_sgd": 0, "mu2_extra_sgd": 1, "storm": 2, "anytime_sgd": 3, "sgd": 4, "momentum": 5,
    "adam": 6, "mu2_auto": 12, "mu2_auto_spectral": 13, "adamw_cosine": 14,
    "schedule_free_adamw": 15, "prodigy": 16, "muon": 17,
}  # fmt: skip
_DASHES = ((), (8, 3), (2, 3), (10, 3, 2, 3), (16, 4), (10, 3, 2, 3, 2, 3))
_MARKERS = (  # paths in a square from -1 to 1
    "M-.75 0a.75 .75 0 1 1 1.5 0a.75 .75 0 1 1 -1.5 0Z",  # a disc
    "M-.7-.7H.7V.7H-.7Z",  # a square
    "M0-.9L.9 .7H-.9Z",  # a triangle
    "M0-1L1 0L0 1L-1 0Z",  # a diamond
    "M0 .9L.9-.7H-.9Z",
    "M-.3-.9H.3V-.3H.9V.3H.3V.9H-.3V.3H-.9V-.3H-.3Z",  # a plus
    "M-.9 0L.7 .9V-.9Z",
    "M0-1L.3-.3L1 0L.3 .3L0 1L-.3 .3L-1 0L-.3-.3Z",  # a star
    "M.9 0L-.7 .9V-.9Z",
    "M-.4-1H.4V1H-.4Z",  # a bar
    "M-1-.4H1V.4H-1Z",
)


class Style(NamedTuple):
    """The colour, the dashes (lengths in pixels, none if solid) and the marker of a line."""

    color: str
    dash: tuple[int, ...]
    marker: str


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The look of each of the labels of one picture.

    Examples:
      >>> styles(["sgd"])["sgd"] == styles(["adam", "of my own", "sgd"])["sgd"]
      True
    """
    names = {
        label: re.sub(r"[^a-z0-9]+", "_", label.lower().replace("μ²", "mu2")).strip("_")
        for label in labels
    }
    found: dict[str, Style] = {}
    for label in sorted(names, key=lambda label: names[label] not in _KNOWN):
        number, color = divmod(crc32(label.encode()), len(COLORS))
        if names[label] in _KNOWN:
            number, color = _KNOWN[names[label]], list(_KNOWN).index(names[label])
        taken = {style.color for style in found.values()}
        if len(taken) == len(COLORS):  # then dashes and markers tell lines apart
            taken, number = set(), number + len(found)
        turned = [list(COLORS)[(color + i) % len(COLORS)] for i in range(len(COLORS))]
        free = next(color for color in turned if color not in taken)
        dash, marker = _DASHES[number % len(_DASHES)], _MARKERS[number % len(_MARKERS)]
        found[label] = Style(free, dash, marker)
    return {label: found[label] for label in names}
