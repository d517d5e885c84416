"""Line charts as inline SVG that fit any width.

A chart has no coordinates of its own: places are percentages of the plot's area, so that it grows
and shrinks with the page while texts, dots and strokes keep their size. Lines, which SVG cannot
give in percentages, are in a nested drawing that is stretched; each marker is in one of its own.
What a chart looks like is up to the page's style sheet; what a marker stands for is in its title,
which browsers show by themselves.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

from mu2_optax.sweep._analysis.metrics import Array
from mu2_optax.sweep._analysis.styles import Look

_TINY = 1e-300  # no logarithmic axis goes below it, or above its inverse
_HUGE = sys.float_info.max
_RING = "M-7 0a7 7 0 1 1 14 0a7 7 0 1 1-14 0z"


class Mark(NamedTuple):
    """A point of a chart with a tooltip."""

    x: float
    y: float
    tooltip: str


@dataclass(frozen=True)
class Line:
    """One line of a chart, its band and its dots.

    Attributes:
      label: Its name.
      look: Its look.
      pieces: The points (x, mean, low, high) of the line and its band; where a point is missing, a
        new piece begins.
      dots: Single values.
      crosses: Where along the first axis there is no value, each with its tooltip.
      rings: Points of the line that stand out.
    """

    label: str
    look: Look
    pieces: Sequence[Sequence[tuple[float, ...]]]
    dots: Sequence[Mark]
    crosses: Sequence[tuple[float, str]]
    rings: Sequence[Mark] = ()


def tick_text(value: float) -> str:
    """A number beside a tick, in few characters.

    Examples:
      >>> tick_text(0.25), tick_text(1e-7)
      ('0.25', '1e-7')
    """
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


@dataclass(frozen=True)
class Axis:
    """A scale, linear or logarithmic, from 0 % to 100 %.

    Attributes:
      name: What it shows.
      low: The value at 0 %.
      high: The value at 100 %.
      log: Whether it is logarithmic.
      text: Writes a value beside a tick.
      ticks: Where ticks are; round numbers if empty.
    """

    name: str
    low: float
    high: float
    log: bool = False
    text: Callable[[float], str] = tick_text
    ticks: Sequence[float] = ()

    def __call__(self, value: float) -> float:
        """Where a value is, in percent."""
        low, high, value = (log10(v) if self.log else v for v in (self.low, self.high, value))
        # Halved, because a difference of the largest numbers there are would overflow.
        return (value / 2 - low / 2) / (high / 2 - low / 2) * 100 if high > low else 50.0

    def marks(self) -> list[float]:
        """The ticks within the scale."""
        ticks = self.ticks or (decades if self.log else round_numbers)(self.low, self.high)
        return [tick for tick in ticks if -1e-6 <= self(tick) <= 100 + 1e-6]


def fitted_axis(
    name: str,
    values: Array,
    *,
    log: bool,
    pad: float,
    text: Callable[[float], str] = tick_text,
    ticks: Sequence[float] = (),
) -> Axis:
    """A scale around the values, with a margin of ``pad`` times what they span."""
    low, high = float(values.min()), float(values.max())
    if log:
        factor = 10 ** (pad * ((log10(high) - log10(low)) or 1.0))
        low, high = max(low / factor, _TINY), min(high * factor, 1 / _TINY)
    else:
        margin = pad * (min(high - low, _HUGE) or abs(low) or 1.0)
        low, high = max(low - margin, -_HUGE), min(high + margin, _HUGE)
    return Axis(name, low, high, log, text, ticks)


def round_numbers(low: float, high: float) -> list[float]:
    """Four to nine multiples of 1, 2 or 5 times a power of ten.

    Examples:
      >>> round_numbers(0.0, 1.0)
      [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    span = high / 4 - low / 4  # in fourths, because the whole may overflow
    power = 10.0 ** floor(log10(span))
    step = next((s * power for s in (5, 2) if span >= s * power), power)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten, with their double and fivefold where there are few, or every n-th of them.

    Examples:
      >>> decades(0.1, 10.0)
      [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
      >>> decades(1e-9, 1e9)
      [1e-09, 1e-06, 0.001, 1.0, 1000.0, 1000000.0, 1000000000.0]
    """
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    if last - first < 3:
        every = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [float(f"{v:.12g}") for v in every if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
    return [10.0**p for p in range(first, last + 1, ceil((last - first) / 8))]


def chart(
    lines: Sequence[Line], x: Axis, y: Axis, *, crosses_on_top: bool, cut: bool = False
) -> str:
    """A chart as an ``<svg>`` element; of the lines, the first is in front.

    If ``cut``, what lies beyond the vertical scale is cut off, and so are the crosses.
    """
    if cut:
        lines = [
            replace(
                line,
                dots=[dot for dot in line.dots if y.low <= dot.y <= y.high],
                crosses=(),
                rings=[ring for ring in line.rings if y.low <= ring.y <= y.high],
            )
            for line in lines
        ]
    sharing: dict[float, list[str]] = {}  # the labels of the lines with a cross at the same place
    for line in lines:
        for at, _ in line.crosses:
            sharing.setdefault(at, []).append(line.label)
    edge = "hidden" if cut else "visible"
    shown = lines[::-1]
    drawn = "".join(_group(line, _stretched(line, x, y)) for line in shown)
    marks = "".join(
        _group(line, _dots(line, x, y) + _crosses(line, x, sharing, on_top=crosses_on_top))
        for line in shown
    )
    return (
        f'<svg class="chart" role="group" tabindex="0" aria-label="{escape(y.name)} against '
        f'{escape(x.name)}; arrow keys go from value to value">'
        f'{_grid(x, y)}<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" '
        f'height="100%" overflow="{edge}" aria-hidden="true">{drawn}</svg>{marks}'
        f'<text class="name" x="50%" y="100%" dy="38">{escape(x.name)}</text></svg>'
    )


def _group(line: Line, inside: str) -> str:
    return f'<g class="line {line.look.name}" data-label="{escape(line.label)}">{inside}</g>'


def _stretched(line: Line, x: Axis, y: Axis) -> str:
    """The band and the line, in the coordinates of the stretched drawing."""

    def points(places: Iterable[tuple[float, float]]) -> str:
        # Far outside, but not farther than a browser can be asked to draw.
        return " ".join(f"{x(a):.2f},{100 - max(-1e6, min(y(b), 1e6)):.2f}" for a, b in places)

    bands = means = ""
    for piece in line.pieces:
        if len(piece) > 1:
            lower = [(at, low) for at, _, low, _ in piece]
            upper = [(at, high) for at, _, _, high in piece]
            bands += f'<polygon points="{points(lower + upper[::-1])}"/>'
            means += f'<polyline points="{points((at, mean) for at, mean, _, _ in piece)}"/>'
    return bands + means


def _dots(line: Line, x: Axis, y: Axis) -> str:
    marks = [("dot", line.look.marker, dot) for dot in line.dots]
    marks += [("ring", _RING, ring) for ring in line.rings]
    return "".join(
        f'<svg class="at" x="{x(mark.x):.2f}%" y="{100 - y(mark.y):.2f}%"><path class="{kind}" '
        f'd="{path}"><title>{escape(mark.tooltip)}</title></path></svg>'
        for kind, path, mark in marks
        if isfinite(mark.y)
    )


def _crosses(line: Line, x: Axis, sharing: Mapping[float, list[str]], *, on_top: bool) -> str:
    """The crosses of a line, beside those of the lines that share their places."""
    drawn = ""
    y, dy = (0, 12) if on_top else (100, -4)
    for at, tooltip in line.crosses:
        labels = sharing[at]
        shift = 8 * (labels.index(line.label) - (len(labels) - 1) / 2)
        drawn += (
            f'<text class="cross" x="{x(at):.2f}%" y="{y}%" dx="{shift:g}" dy="{dy}">'
            f"×<title>{escape(tooltip)}</title></text>"
        )
    return drawn


def _grid(x: Axis, y: Axis) -> str:
    """Lines and texts of the ticks; those too close to another on a phone or paper are marked."""
    parts = []
    last = last_if_narrow = -100.0
    for tick in x.marks():
        at = x(tick)
        if at - last < 4.5:
            continue
        last, kind = at, "tick wide"
        if at - last_if_narrow >= 11.0:
            last_if_narrow, kind = at, "tick"
        parts.append(
            f'<line x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'
            f'<text class="{kind} x" x="{at:.2f}%" y="100%" dy="18">{escape(x.text(tick))}</text>'
        )
    for tick in y.marks():
        at = 100 - y(tick)
        parts.append(
            f'<line x1="0" x2="100%" y1="{at:.2f}%" y2="{at:.2f}%"/>'
            f'<text class="tick y" x="0" dx="-8" y="{at:.2f}%" dy=".32em">'
            f"{escape(y.text(tick))}</text>"
        )
    return f'<g class="grid" aria-hidden="true">{"".join(parts)}</g>'
