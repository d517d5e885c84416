"""How lines become an Altair chart."""

import importlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mu2_optax.sweep._metrics import Band, Mode, loss_sign
from mu2_optax.sweep._styles import Style

if TYPE_CHECKING:
    from altair import LayerChart

_NUMBER = (  # 1e-4 and 2.5e-3, but 0.01 and 1000
    "datum.value && (abs(datum.value) >= 1e4 || abs(datum.value) < 1e-2)"
    " ? replace(format(datum.value, '.3~e'), '+', '') : format(datum.value, '.6~g')"
)
_AXIS: dict[str, Any] = {
    "labelExpr": _NUMBER, "labelOverlap": "greedy", "labelSeparation": 8, "labelFontSize": 12,
    "titleFontSize": 13, "titleFontWeight": "normal",
}  # fmt: skip
_LEGEND: dict[str, Any] = {
    "labelFontSize": 12, "labelLimit": 400, "labelOffset": 16, "rowPadding": 6, "symbolOffset": 12,
    "symbolOpacity": 1, "symbolSize": 55, "symbolStrokeColor": "#777777",
}  # fmt: skip
_MARKS = {"published default": "circle", "diverged": "M-.6-.6L.6 .6M-.6 .6L.6-.6"}

_CHARTS = itertools.count()  # charts side by side need names of their own for what is selected


class Axis(NamedTuple):
    """An axis: its title, its ends, whether it is logarithmic, and its ticks if they are given."""

    title: str
    low: float
    high: float
    log: bool = False
    ticks: Sequence[float] = ()


def fitted_axis(
    title: str, bands: Iterable[Band], mode: Mode, *, ylim: tuple[float, float] | None = None
) -> Axis:
    """The vertical axis that holds the bands, logarithmic if they are over a factor of 30 apart.

    It leaves out what is over ten thousand times as bad as the best quarter of the means.
    """
    drawn, sign = list(bands), loss_sign(mode)
    losses = sign * _finite(array for band in drawn for array in band)
    low, high = ylim or (0.0, 1.0)
    if ylim is None and losses.size:
        quarter = float(np.quantile(sign * _finite(band.mean for band in drawn), 0.25))
        kept = losses[losses <= quarter + 1e4 * max(abs(quarter), 1.0)]
        low, high = sorted((float(sign * kept.min()), float(sign * kept.max())))
    log = mode == "min" and low > 0 and high / 30 > low
    ends = (low, high) if ylim else padded(low, high, log=log)
    return Axis(title, *ends, log, _decades(*ends) if log else ())


def padded(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """The ends of an axis, with a little room beyond the lowest and the highest value."""
    if log:
        room = (high / low) ** 0.05 if high > low else 3.0
        return low / room, high * room
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten, or 1, 2, 5, 10, ... where those would be few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) < 5 else (1,)
    every = -(-len(powers) // 8)  # not too many of them
    ticks = [digit * 10.0**power for power in powers[::every] for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def draw(
    points: Sequence[Mapping[str, Any]],
    marks: Sequence[Mapping[str, Any]],
    looks: Mapping[str, Style],
    x: Axis,
    y: Axis,
    *,
    title: str | None = None,
    bold: Collection[str] = (),
) -> "LayerChart":
    """Draws lines with bands and markers, marks above them, and a legend that hides lines.

    A point has ``line`` (its name), ``x``, ``y``, ``low`` and ``high`` (the band), ``bare`` (no
    marker), and what a pointer shows: ``at``, ``mean`` and ``seeds``. A mark also has a ``kind``,
    "published default" or "diverged".
    """
    alt: Any = importlib.import_module("altair")

    def scaled(axis: Axis, **options: Any) -> dict[str, Any]:
        kind: dict[str, Any] = {"type": "log"} if axis.log else {"type": "linear", "zero": False}
        options |= {"values": list(axis.ticks)} if axis.ticks else {}
        scale = alt.Scale(domain=[axis.low, axis.high], nice=False, **kind)
        return {"title": axis.title, "scale": scale, "axis": alt.Axis(**_AXIS, **options)}

    def by_line(channel: Any, values: Iterable[Any], legend: Any = None) -> Any:
        scale = alt.Scale(domain=list(looks), range=list(values), type="ordinal")
        kind = "O" if channel is alt.StrokeWidth else "N"  # which Vega-Lite wants
        return channel(f"line:{kind}", scale=scale, legend=legend)

    across = alt.X("x:Q", **scaled(x, grid=False, tickCount=8))
    up = alt.Y("y:Q", **scaled(y, tickCount=6))
    colors, dashes, markers = (list(values) for values in zip(*looks.values(), strict=True))
    widths = [4.5 if name in bold else 2 for name in looks]
    color, keys = by_line(alt.Color, colors), alt.Legend(title=None, **_LEGEND)
    number, every_line = next(_CHARTS), [{"line": name} for name in looks]
    shown = alt.selection_point(
        f"shown_{number}", fields=["line"], value=every_line, bind="legend", toggle="true",
        clear=False, empty=False,
    )  # fmt: skip
    zoom = alt.selection_interval(f"view_{number}", bind="scales", zoom="wheel![event.shiftKey]")
    samples = [f"M-3.2 0H3.2{'' if n in bold else look.marker}" for n, look in looks.items()]
    key = alt.Chart(alt.Data(values=every_line)).mark_point(filled=True, size=0)
    key = key.encode(  # draws nothing, but its legend shows each line with its marker
        across, up, by_line(alt.Fill, colors, keys), by_line(alt.Stroke, colors, keys),
        by_line(alt.StrokeDash, dashes, keys), by_line(alt.StrokeWidth, widths, keys),
        by_line(alt.Shape, samples, keys),
    ).add_params(shown, zoom)  # fmt: skip
    pointed = {"line": "optimizer", "at": x.title, "mean": y.title, "seeds": "over seeds"}
    tooltip = [alt.Tooltip(f"{field}:N", title=name) for field, name in pointed.items()]
    data = alt.Chart().transform_filter(shown)
    band = data.mark_area(opacity=0.15, clip=True)
    band = band.encode(across, alt.Y("low:Q"), alt.Y2("high:Q"), color)
    stroke = by_line(alt.StrokeDash, dashes), by_line(alt.StrokeWidth, widths)
    line = data.mark_line(clip=True).encode(across, up, color, *stroke)
    dots = data.transform_filter("!datum.bare")
    dots = dots.mark_point(filled=True, size=60, opacity=1, clip=True)
    layers = [
        key,
        band,
        line,
        dots.encode(across, up, color, by_line(alt.Shape, markers), tooltip=tooltip),
    ]
    if marks:
        kinds = {kind: p for kind, p in _MARKS.items() if any(m["kind"] == kind for m in marks)}
        shapes = alt.Scale(domain=list(kinds), range=list(kinds.values()))
        shape = alt.Shape("kind:N", scale=shapes, legend=alt.Legend(title=None, **_LEGEND))
        above = alt.Chart(alt.Data(values=list(marks))).transform_filter(shown)
        above = above.mark_point(filled=False, size=170, strokeWidth=2, opacity=1, clip=True)
        layers.append(above.encode(across, up, color, shape, tooltip=[*tooltip[:-1], "kind:N"]))
    channels = ("color", "fill", "stroke", "shape", "strokeDash", "strokeWidth")
    heading = alt.Title(title or "", anchor="start", fontSize=14, fontWeight="normal")
    chart = alt.layer(*layers, data=alt.Data(values=list(points)))
    chart = chart.resolve_scale(**dict.fromkeys(channels, "independent"))
    view = alt.ViewBackground(stroke=None)
    drawn: LayerChart = chart.properties(width=480, height=300, title=heading, view=view)
    return drawn


def _finite(arrays: Iterable[Any]) -> Any:
    """All finite values, in a range in which differences are finite, too."""
    values = np.concatenate([np.ravel(array) for array in arrays] or [np.zeros(0)])
    return np.clip(values[np.isfinite(values)], -1e300, 1e300)
