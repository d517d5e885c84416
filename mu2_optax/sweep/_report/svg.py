"""Line charts as inline SVG that fit any width.

A chart has no coordinates of its own: places are percentages of the plot's area, so that it grows
and shrinks with the page while texts, dots and strokes keep their size. Lines, which SVG cannot
give in percentages, are in a nested drawing that is stretched; each marker is in one of its own.
What a chart looks like is up to the page's style sheet; what a marker stands for is in its title,
which browsers show by themselves.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import ceil, floor, isfinite, log10

from mu2_optax.sweep._analysis.metrics import Array
from mu2_optax.sweep._analysis.styles import Look

Point = tuple[float, float]
_TINY = 1e-300  # no logarithmic axis goes below it, or above its inverse
_HUGE = sys.float_info.max
_RING = "M-7 0a7 7 0 1 1 14 0a7 7 0 1 1-14 0z"


@dataclass(frozen=True)
class Line:
    """One line of a chart, its band and its dots.

    Attributes:
      label: Its name.
      look: Its look.
      mean: The line, in pieces: where a point is missing, a new piece begins.
      band: For each piece, the points along the lower edge and back along the upper one.
      dots: Single values, each with what it stands for.
      crosses: Where along the first axis there is no value, each with why.
      rings: Points of the line that stand out, each with what it stands for.
    """

    label: str
    look: Look
    mean: Sequence[Sequence[Point]]
    band: Sequence[Sequence[Point]] = ()
    dots: Sequence[tuple[Point, str]] = ()
    crosses: Sequence[tuple[float, str]] = ()
    rings: Sequence[tuple[Point, str]] = ()


@dataclass(frozen=True)
class Axis:
    """A scale, linear or logarithmic, from 0 % to 100 %.

    Attributes:
      low: The value at 0 %.
      high: The value at 100 %.
      log: Whether it is logarithmic.
      text: Writes a value beside a tick.
      ticks: Where ticks are; round numbers if empty.
    """

    low: float
    high: float
    log: bool = False
    text: Callable[[float], str] = "{:g}".format
    ticks: Sequence[float] = field(default=())

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
    values: Array,
    *,
    log: bool,
    pad: float,
    text: Callable[[float], str],
    ticks: Sequence[float] = (),
) -> Axis:
    """A scale around the values, with a margin of ``pad`` times what they span."""
    low, high = float(values.min()), float(values.max())
    if log:
        margin = pad * ((log10(high) - log10(low)) or 1.0)
        low, high = max(low / 10**margin, _TINY), min(high * 10**margin, 1 / _TINY)
        return Axis(low, high, True, text, ticks)
    margin = pad * (min(high - low, _HUGE) or abs(low) or 1.0)
    return Axis(max(low - margin, -_HUGE), min(high + margin, _HUGE), False, text, ticks)


def tick_text(value: float) -> str:
    """A number beside a tick, in few characters.

    Examples:
      >>> tick_text(0.25), tick_text(1e-7)
      ('0.25', '1e-7')
    """
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


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
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    xlabel: str,
    ylabel: str,
    *,
    crosses_on_top: bool,
    cut: bool = False,
) -> str:
    """A chart as an ``<svg>`` element; of the lines, the first is in front.

    If ``cut``, what lies beyond the vertical scale is cut off, and so are the crosses.
    """
    shown = lines[::-1]
    if cut:
        shown = [
            replace(
                line,
                crosses=(),
                dots=[dot for dot in line.dots if y.low <= dot[0][1] <= y.high],
                rings=[ring for ring in line.rings if y.low <= ring[0][1] <= y.high],
            )
            for line in shown
        ]
        lines = shown[::-1]
    edge = "hidden" if cut else "visible"
    drawn = "".join(_stretched(line, x, y) for line in shown)
    crosses = _crosses(lines, x, 0.0 if crosses_on_top else 100.0)
    dots = "".join(_group(line, _dots(line, x, y) + crosses[line.label]) for line in shown)
    return (
        f'<svg class="chart" role="group" tabindex="0" aria-label="{escape(ylabel)} against '
        f'{escape(xlabel)}; arrow keys go from value to value">'
        f'{_grid(x, y)}<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" '
        f'height="100%" overflow="{edge}" aria-hidden="true">{drawn}</svg>{dots}'
        f'<text class="name" x="50%" y="100%" dy="38">{escape(xlabel)}</text></svg>'
    )


def _group(line: Line, inside: str) -> str:
    return f'<g class="line {line.look.name}" data-label="{escape(line.label)}">{inside}</g>'


def _stretched(line: Line, x: Axis, y: Axis) -> str:
    """The band and the line, in the coordinates of the stretched drawing."""

    def places(points: Sequence[Point]) -> str:
        return " ".join(f"{x(a):.2f},{100 - _near(y(b)):.2f}" for a, b in points)

    band = "".join(f'<polygon points="{places(edge)}"/>' for edge in line.band if len(edge) > 2)
    mean = "".join(f'<polyline points="{places(part)}"/>' for part in line.mean if len(part) > 1)
    return _group(line, band + mean)


def _near(height: float) -> float:
    """A height in percent, or as far outside as a browser can be asked to draw."""
    return max(-1e6, min(height, 1e6))


def _dots(line: Line, x: Axis, y: Axis) -> str:
    marked = [("dot", line.look.marker, dot) for dot in line.dots]
    marked += [("ring", _RING, ring) for ring in line.rings]
    return "".join(
        f'<svg class="at" x="{x(a):.2f}%" y="{100 - y(b):.2f}%"><path class="{kind}" '
        f'd="{path}"><title>{escape(text)}</title></path></svg>'
        for kind, path, ((a, b), text) in marked
        if isfinite(b)
    )


def _crosses(lines: Sequence[Line], x: Axis, edge: float) -> dict[str, str]:
    """The crosses of each line; side by side where several lines have one at the same place."""
    together: dict[float, list[str]] = {}
    for line in lines:
        for at, _ in line.crosses:
            together.setdefault(at, []).append(line.label)
    drawn = {}
    for line in lines:
        drawn[line.label] = ""
        for at, text in line.crosses:
            there = together[at]
            shift = 8 * (there.index(line.label) - (len(there) - 1) / 2)
            drawn[line.label] += (
                f'<text class="cross" x="{x(at):.2f}%" y="{edge:g}%" dx="{shift:g}" '
                f'dy="{12 if edge == 0 else -4}">×<title>{escape(text)}</title></text>'
            )
    return drawn


def _grid(x: Axis, y: Axis) -> str:
    """Lines and texts of the ticks; those too close to another on a phone or paper are marked."""
    parts = []
    taken = taken_if_narrow = -100.0
    for tick in x.marks():
        at = x(tick)
        if at - taken < 4.5:
            continue
        taken, narrow = at, at - taken_if_narrow >= 11.0
        taken_if_narrow = at if narrow else taken_if_narrow
        kind = "tick" if narrow else "tick wide"
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
