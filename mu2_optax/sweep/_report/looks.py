"""How each line of a page looks: a class of the style sheet, and the sample in a legend."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mu2_optax.sweep._analysis.styles import MARKERS, Style

WIDTH = 2.0  # of a line, in pixels


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
        dash = " ".join(f"{length * WIDTH:g}" for length in look.style.dash) or "none"
        light += f".{look.name}{{--c:{look.style.color};--dash:{dash}}}"
        if look.style.hollow:
            light += f".{look.name} .dot{{fill:var(--ground);stroke:var(--c)}}"
        dark += f".{look.name}{{--c:{look.style.on_dark}}}"
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
