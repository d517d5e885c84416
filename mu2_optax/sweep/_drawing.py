"""How lines over a grid become an Altair chart, with axes that no single value can make absurd."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2_optax.sweep._metrics import Band, Mode, loss_sign
from mu2_optax.sweep._styles import Style

if TYPE_CHECKING:
    import altair as alt

_WIDE = 30.0  # an axis over more than this factor is logarithmic
_NUMBER = (  # 1e-4 and 2.5e-3, but 0.01 and 1000
    "datum.value && (abs(datum.value) >= 1e4 || abs(datum.value) < 1e-2)"
    " ? replace(format(datum.value, '.3~e'), '+', '') : format(datum.value, '.6~g')"
)
_TEXT: dict[str, Any] = {
    "labelExpr": _NUMBER,
    "labelFontSize": 12,
    "labelOverlap": "greedy",
    "labelSeparation": 8,
    "titleFontSize": 13,
    "titleFontWeight": "normal",
}
_KEYS: dict[str, Any] = {  # of a legend
    "labelFontSize": 12,
    "labelLimit": 400,
    "labelOffset": 16,
    "rowPadding": 6,
    "symbolOffset": 12,
    "symbolOpacity": 1,
    "symbolSize": 55,
}
_KINDS = {"published default": "circle", "diverged": "M-.6-.6L.6 .6M-.6 .6L.6-.6"}  # of marks


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
      title: Its title.
      low: Its lower end.
      high: Its upper end.
      log: Whether it is logarithmic.
      ticks: Where its ticks are; anywhere if empty.
      worse_is_high: Whether its upper end is the worse one.
    """

    title: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    worse_is_high: bool = True

    @property
    def worse(self) -> float:
        """The worse end."""
        return self.high if self.worse_is_high else self.low

    def holds(self, value: float) -> bool:
        """Whether a value is finite, and not beyond the worse end."""
        inside = value <= self.high if self.worse_is_high else value >= self.low
        return bool(np.isfinite(value) and inside)

    def place(self, value: float) -> float | None:
        """Where a value is drawn: perhaps outside, but not too far for a browser."""
        if not np.isfinite(value):
            return None
        if self.log:
            return float(np.clip(value, self.low**2 / self.high, self.high**2 / self.low))
        return float(np.clip(value, 2 * self.low - self.high, 2 * self.high - self.low))


def fitted_axis(
    title: str,
    bands: Iterable[Band],
    mode: Mode,
    *,
    ylim: tuple[float, float] | None = None,
    typical: Sequence[Any] | None = None,
) -> Axis:
    """The vertical axis that holds the bands, logarithmic if they are far apart.

    It leaves out what is over ten thousand times as bad as the best quarter of the ``typical``
    values, which are the means if None.
    """
    drawn, sign = list(bands), loss_sign(mode)
    losses = sign * _finite(array for band in drawn for array in band)
    if ylim is None and losses.size:
        usual = sign * _finite(typical or [band.mean for band in drawn])
        quarter = float(np.quantile(usual, 0.25)) if usual.size else 0.0
        kept = sign * losses[losses <= quarter + 1e4 * max(abs(quarter), 1.0)]
        ylim = float(kept.min()), float(kept.max())
        log = mode == "min" and ylim[0] > 0 and ylim[1] / _WIDE > ylim[0]
        ylim = padded(ylim, log=log)
    ylim = ylim or (0.0, 1.0)
    log = mode == "min" and ylim[0] > 0 and ylim[1] / _WIDE > ylim[0]
    return Axis(title, *ylim, log, worse_is_high=mode == "min")


def padded(values: Sequence[float], *, log: bool) -> tuple[float, float]:
    """The ends of an axis, with a little room beyond the lowest and the highest value."""
    low, high = min(values), max(values)
    if log:
        room = (high / low) ** 0.05 if high > low else 10**0.5
        return low / room, high * room
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def draw(
    points: Sequence[Mapping[str, Any]],
    marks: Sequence[Mapping[str, Any]],
    looks: Mapping[str, Style],
    x: Axis,
    y: Axis,
    *,
    title: str | None = None,
    legend: str | None = None,
    bold: Collection[str] = (),
) -> "alt.LayerChart":
    """Lines with bands and markers, marks above them, and a legend that hides and shows lines.

    Args:
      points: For each a dict with ``line`` (its name), ``x``, ``y``, ``low`` and ``high`` (the
        band), ``bare`` (no marker), and what a pointer shows: ``at``, ``mean``, ``seeds``.
      marks: The same, with a ``kind``, a key of ``_KINDS``.
      looks: The look of each line, by name.
      x: The horizontal axis.
      y: The vertical axis.
      title: The chart's title.
      legend: The legend's title.
      bold: The lines that are thick and without markers.
    """
    try:
        import altair as alt
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "charts need Altair: `pip install altair vl-convert-python`"
        ) from error
    names = list(looks)

    def scale(values: Iterable[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=list(values), type="ordinal")

    def axis_scale(axis: Axis) -> alt.Scale:
        kind = alt.Scale(type="log") if axis.log else alt.Scale(type="linear", zero=False)
        return alt.Scale(domain=[axis.low, axis.high], nice=False, **kind.to_dict())

    color = scale(look.color for look in looks.values())
    dash = scale(look.dash for look in looks.values())
    width = scale(4.5 if name in bold else 2 for name in names)
    marker = scale(look.marker for look in looks.values())
    keys = [f"M-3.2 0H3.2{'' if n in bold else look.marker}" for n, look in looks.items()]
    key_legend = alt.Legend(title=legend, **_KEYS)
    shown = alt.selection_point(
        fields=["line"],
        value=[{"line": name} for name in names],
        bind="legend",
        toggle="true",
        clear=False,
        empty=False,
    )
    key = (  # draws nothing, but in its legend each line has its marker
        alt.Chart(alt.Data(values=[{"line": name} for name in names]))
        .mark_point(filled=True, size=0)
        .encode(
            alt.Fill("line:N", scale=color, legend=key_legend),
            alt.Stroke("line:N", scale=color, legend=key_legend),
            alt.StrokeDash("line:N", scale=dash, legend=key_legend),
            alt.StrokeWidth("line:N", scale=width, legend=key_legend),
            alt.Shape("line:N", scale=scale(keys), legend=key_legend),
        )
        .add_params(shown)
    )
    ticks = {"values": list(x.ticks)} if x.ticks else {}
    across = alt.X(
        "x:Q", title=x.title, scale=axis_scale(x), axis=alt.Axis(**_TEXT, **ticks, grid=False)
    )
    up = alt.Y("y:Q", title=y.title, scale=axis_scale(y), axis=alt.Axis(**_TEXT, tickCount=6))
    own = alt.Color("line:N", scale=color, legend=None)
    pointed = {"line": legend or "optimizer", "at": x.title, "mean": y.title, "seeds": "over seeds"}
    tooltip = [alt.Tooltip(f"{field}:N", title=name) for field, name in pointed.items()]
    zoom = alt.selection_interval(bind="scales", zoom="wheel![event.shiftKey]")
    data = alt.Chart(alt.Data(values=list(points))).transform_filter(shown)
    band = data.mark_area(opacity=0.15, clip=True).encode(
        across, alt.Y("low:Q"), alt.Y2("high:Q"), own
    )
    line = data.mark_line(clip=True).encode(
        across,
        up,
        own,
        alt.StrokeDash("line:N", scale=dash, legend=None),
        alt.StrokeWidth("line:N", scale=width, legend=None),
    )
    dots = (
        data.transform_filter("!datum.bare")
        .mark_point(filled=True, size=60, opacity=1, clip=True)
        .encode(across, up, own, alt.Shape("line:N", scale=marker, legend=None), tooltip=tooltip)
    )
    layers = [key, band, line.add_params(zoom), dots]
    if marks:
        kinds = [kind for kind in _KINDS if any(mark["kind"] == kind for mark in marks)]
        shapes = alt.Scale(domain=kinds, range=[_KINDS[kind] for kind in kinds])
        kind_legend = alt.Legend(
            title=None, **_KEYS | {"symbolSize": 100, "symbolStrokeColor": "#777"}
        )
        layers.append(
            alt.Chart(alt.Data(values=list(marks)))
            .transform_filter(shown)
            .mark_point(filled=False, size=170, strokeWidth=2, opacity=1, clip=True)
            .encode(
                across,
                up,
                own,
                alt.Shape("kind:N", scale=shapes, legend=kind_legend),
                tooltip=[*tooltip[:-1], alt.Tooltip("kind:N", title="marked")],
            )
        )
    channels = ("color", "fill", "stroke", "shape", "strokeDash", "strokeWidth")
    return (
        alt.layer(*layers)
        .resolve_scale(**dict.fromkeys(channels, "independent"))
        .properties(
            width=480,
            height=300,
            title=alt.Title(title or "", anchor="start", fontSize=14, fontWeight="normal"),
        )
    )


def _finite(arrays: Iterable[Any]) -> Any:
    """All finite values, in a range in which differences are finite, too."""
    values = np.concatenate([np.ravel(array) for array in arrays] or [np.zeros(0)])
    return np.clip(values[np.isfinite(values)], -1e300, 1e300)
