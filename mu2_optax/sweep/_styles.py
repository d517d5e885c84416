"""How a line looks: each label has its colour, in every picture and on every page.

A label's colour depends on the label alone. So do its dashes and its marker, unless another line of
the same picture has that colour: then it gets the next ones, so that no two lines look alike.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32


class Style(NamedTuple):
    """How a line looks.

    Attributes:
      color: Its colour on a light background.
      dash: Lengths of dashes and gaps in pixels; a solid line if empty.
      marker: The path of its marker, in a square from -1 to 1.
    """

    color: str
    dash: tuple[int, ...]
    marker: str


# On light, and on dark. The first seven on light are Okabe and Ito's, which people with any colour
# vision can tell apart; all others are chosen to be as far apart as possible.
COLORS = {
    "#d55e00": "#cf630d",
    "#cc79a7": "#b167ab",
    "#009e73": "#009342",
    "#0072b2": "#3991b7",
    "#000000": "#ebebeb",
    "#56b4e9": "#48d7fe",
    "#e69f00": "#fab72a",
    "#de297b": "#fda9b5",
    "#57288f": "#e573ff",
    "#6180fe": "#7472f4",
    "#26541c": "#88fca4",
    "#907d5e": "#ada052",
    "#8a0700": "#f94173",
}
# The labels that have a colour of their own. The first of each group is solid.
_GROUPS = (
    ("mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum"),
    ("adam",),
    ("mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy", "muon"),
)
_NUMBERS = {name: 6 * i + j for i, group in enumerate(_GROUPS) for j, name in enumerate(group)}
_KNOWN = {name: (color, number) for color, (name, number) in enumerate(_NUMBERS.items())}
_DASHES = ((), (8, 3), (2, 3), (10, 3, 2, 3), (16, 4), (10, 3, 2, 3, 2, 3))
_MARKERS = (
    "M-.75 0a.75 .75 0 1 1 1.5 0a.75 .75 0 1 1 -1.5 0Z",  # a disc
    "M-.7-.7H.7V.7H-.7Z",  # a square
    "M0-.9L.9 .7H-.9Z",  # a triangle
    "M0-1L1 0L0 1L-1 0Z",  # a diamond
    "M0 .9L.9-.7H-.9Z",
    "M-.3-.9H.3V-.3H.9V.3H.3V.9H-.3V.3H-.9V-.3H-.3Z",  # a plus
    "M0-1L.3-.3L1 0L.3 .3L0 1L-.3 .3L-1 0L-.3-.3Z",  # a star
    "M-.9 0L.7 .9V-.9Z",
    "M.9 0L-.7 .9V-.9Z",
    "M-.4-1H.4V1H-.4Z",  # a bar
    "M-1-.4H1V.4H-1Z",
)


def styles(labels: Iterable[str]) -> list[Style]:
    """The look of each of the labels of one picture.

    Examples:
      >>> styles(["sgd"]) == styles(["adam", "of my own", "sgd"])[2:]
      True
    """
    found: list[Style] = []
    for label in labels:
        name = re.sub(r"[^a-z0-9]+", "_", label.lower().replace("μ²", "mu2")).strip("_")
        number, color = divmod(crc32(label.encode()), len(COLORS))
        color, number = _KNOWN.get(name, (color, number))
        possible = [_style(color, number + i) for i in range(len(_DASHES) * len(_MARKERS))]
        taken = [style for style in found if style.color == possible[0].color]
        free = [style for style in possible if style not in taken]
        other_dash = [style for style in free if style.dash not in {s.dash for s in taken}]
        found.append((other_dash or free or possible)[0])
    return found


def numbered_styles(count: int) -> list[Style]:
    """Looks for lines that are not optimizers, such as those of learning rates."""
    return [_style(i, i) for i in range(count)]


def _style(color: int, number: int) -> Style:
    colors = list(COLORS)
    return Style(
        colors[color % len(colors)],
        _DASHES[number % len(_DASHES)],
        _MARKERS[number % len(_MARKERS)],
    )
