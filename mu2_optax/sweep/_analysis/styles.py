"""How a line looks: each label has its colour, in every picture and on every page.

A label's colour depends on the label alone. So do its dashes and its marker, unless another line of
the same picture has that colour: then it gets the next ones, so that no two lines look alike.
Nothing here needs Matplotlib. On a page, a line's look is a class of the style sheet.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32


@dataclass(frozen=True)
class Style:
    """How a line looks.

    Attributes:
      color: Its colour on a light background.
      on_dark: Its colour on a dark background.
      dash: Lengths of dashes and gaps, in widths of the line; a solid line if empty.
      marker: The place of its marker in `MARKERS`.
      hollow: Whether its markers are outlines.
    """

    color: str
    on_dark: str
    dash: tuple[float, ...] = ()
    marker: int = 0
    hollow: bool = False


_WIDTH = 2.0  # of a line on a page, in pixels
# Each on light and on dark. The first seven on light are Okabe and Ito's, which people with any
# colour vision can tell apart; all others are chosen to be as far apart as possible.
COLORS = (
    ("#d55e00", "#cf630d"),
    ("#cc79a7", "#b167ab"),
    ("#009e73", "#009342"),
    ("#0072b2", "#3991b7"),
    ("#000000", "#ebebeb"),
    ("#56b4e9", "#48d7fe"),
    ("#e69f00", "#fab72a"),
    ("#de297b", "#fda9b5"),
    ("#57288f", "#e573ff"),
    ("#6180fe", "#7472f4"),
    ("#26541c", "#88fca4"),
    ("#907d5e", "#ada052"),
    ("#8a0700", "#f94173"),
)
# The labels that have a colour of their own. The first of each group is solid.
_GROUPS = (
    ("mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum"),
    ("adam",),
    ("mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy", "muon"),
)
_NUMBERS = {name: 6 * i + j for i, group in enumerate(_GROUPS) for j, name in enumerate(group)}
_KNOWN = {name: (color, number) for color, (name, number) in enumerate(_NUMBERS.items())}
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (4.0, 1.6),
    (1.2, 1.4),
    (5.0, 1.4, 1.2, 1.4),
    (8.0, 2.0),
    (5.0, 1.4, 1.2, 1.4, 1.2, 1.4),
)
# Each marker by its name in Matplotlib, and as the path of an SVG drawing around (0, 0).
MARKERS = (
    ("o", "M-3 0a3 3 0 1 1 6 0a3 3 0 1 1-6 0z"),
    ("s", "M-2.7-2.7h5.4v5.4h-5.4z"),
    ("^", "M0-3.6l3.6 6.2h-7.2z"),
    ("D", "M0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z"),
    ("v", "M0 3.6l3.6-6.2h-7.2z"),
    ("P", "M-1.2-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z"),
    ("X", "M0-1.5l1.9-1.9l1.5 1.5l-1.9 1.9l1.9 1.9l-1.5 1.5l-1.9-1.9l-1.9 1.9l-1.5-1.5l1.9-1.9"
          "l-1.9-1.9l1.5-1.5z"),
    ("*", "M0-4.4l1.1 3h3.2l-2.5 2l.9 3.1l-2.7-1.8l-2.7 1.8l.9-3.1l-2.5-2h3.2z"),
    ("<", "M-3.6 0l6.2 3.6v-7.2z"),
    (">", "M3.6 0l-6.2 3.6v-7.2z"),
    ("p", "M0-3.6l3.5 2.5l-1.3 4.1h-4.4l-1.3-4.1z"),
)  # fmt: skip


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The look of each of the labels of one picture.

    Examples:
      >>> alone, among = styles(["sgd"]), styles(["adam", "of my own", "sgd"])
      >>> alone["sgd"] == among["sgd"]
      True
    """
    found: dict[str, Style] = {}
    for label in labels:
        color, number = _color_and_number(label)
        possible = [_style(color, number + i) for i in range(len(DASHES) * len(MARKERS))]
        taken = [style for style in found.values() if style.color == possible[0].color]
        free = [style for style in possible if style not in taken]
        other_dash = [style for style in free if style.dash not in {s.dash for s in taken}]
        found[label] = (other_dash or free or possible)[0]
    return found


def numbered_styles(count: int) -> list[Style]:
    """Looks for lines that are not optimizers, such as those of learning rates."""
    return [_style(i % len(COLORS), i) for i in range(count)]


def styles_of_two_runs(labels: Sequence[str]) -> tuple[dict[str, Style], dict[str, Style]]:
    """The looks of a first and a second run of the same labels: solid, and dashed and hollow."""
    first = {label: replace(style, dash=()) for label, style in styles(labels).items()}
    second = {label: replace(s, dash=DASHES[1], hollow=True) for label, s in first.items()}
    return first, second


@dataclass(frozen=True)
class Look:
    """The look of one line.

    Attributes:
      name: Its class in the style sheet.
      style: Its colours, dashes and marker.
    """

    name: str
    style: Style

    @property
    def marker(self) -> str:
        """The path of its marker, around (0, 0)."""
        return MARKERS[self.style.marker][1]

    def key(self) -> str:
        """A sample of the line, to stand before its name."""
        return (
            f'<svg class="key {self.name}" width="34" height="10" aria-hidden="true">'
            '<path class="stroke" d="M0 5h34"/>'
            f'<path class="dot" transform="translate(17 5)" d="{self.marker}"/></svg>'
        )


Looks = Mapping[str, Look]


def make_looks(styles: Mapping[str, Style]) -> Looks:
    """The looks of a page's lines, by label."""
    return {label: Look(f"s{i}", style) for i, (label, style) in enumerate(styles.items())}


def style_sheet(looks: Iterable[Look]) -> str:
    """The classes of the looks, on a light and on a dark background."""
    light = dark = ""
    for look in looks:
        dash = " ".join(f"{length * _WIDTH:g}" for length in look.style.dash) or "none"
        light += f".{look.name}{{--c:{look.style.color};--dash:{dash}}}"
        if look.style.hollow:
            light += f".{look.name} .dot{{fill:var(--ground);stroke:var(--c)}}"
        dark += f".{look.name}{{--c:{look.style.on_dark}}}"
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _color_and_number(label: str) -> tuple[int, int]:
    """The place of a label's colour, and the number of its preferred dashes and marker."""
    name = re.sub(r"[^a-z0-9]+", "_", label.lower().replace("μ²", "mu2")).strip("_")
    number, color = divmod(crc32(label.encode()), len(COLORS))
    return _KNOWN.get(name, (color, number))


def _style(color: int, number: int) -> Style:
    return Style(*COLORS[color], DASHES[number % len(DASHES)], number % len(MARKERS))
