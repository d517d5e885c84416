"""Pictures for the pages: charts of Altair, written as small PNG files."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from PIL import Image

SCALE = 1.5  # pages show pictures about 900 pixels wide
PALETTE = 128  # colours of a file
# Okabe and Ito's, which people with any colour vision can tell apart.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SKY, YELLOW, GREY, BLACK = "#56b4e9", "#e69f00", "#999999", "#000000"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK, GREY)

Row = Mapping[str, Any]
Look = tuple[str, Sequence[int]]  # a colour, and lengths of dashes and gaps: none is solid
IS_POWER = "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 1e-6"


def data(rows: Sequence[Row]) -> alt.Data:
    """Rows as a chart takes them; a number that is not finite has no place."""
    return alt.Data(values=list(rows))


def axis(
    channel: Any, field: str, title: str, ends: Sequence[float] | None = None, log: bool = False
) -> Any:
    """A horizontal (``alt.X``) or vertical (``alt.Y``) axis, which may be logarithmic."""
    kind = {"type": "log"} if log else {"zero": False}
    scale = alt.Scale(**kind, nice=False, **({"domain": list(ends)} if ends else {}))
    powers = {"condition": {"test": IS_POWER, "value": 1}, "value": 0}  # of the minor ticks
    text = f"{IS_POWER} ? format(datum.value, '~g') : ''"
    labels = alt.Axis(labelExpr=text, gridOpacity=powers) if log else alt.Axis()
    return channel(f"{field}:Q", title=title, scale=scale, axis=labels)


def lines(
    rows: Sequence[Row],
    x: Any,
    y: Any,
    looks: Mapping[str, Look],
    *,
    size: tuple[int, int] = (240, 180),
    columns: int = 0,
    marks: bool = False,
    legend: int = 1,
) -> Any:
    """A line for each ``line`` of the rows, in a panel for each of their ``panel``.

    Args:
      rows: The points, in the order in which lines go through them.
      x: The horizontal axis.
      y: The vertical axis.
      looks: How each line looks, in the order of the legend.
      size: Width and height of a panel.
      columns: How many panels stand side by side, each with a vertical axis of its own; 0 where
        there is one panel.
      marks: Whether points are marked.
      legend: The columns of the legend, below the chart; none if 0.
    """
    names = list(looks)
    entry = alt.Legend(
        title=None, orient="bottom", columns=legend, labelLimit=400, symbolType="stroke"
    )
    shown = entry if legend else None
    colors, dashes = ([look[i] for look in looks.values()] for i in (0, 1))
    chart = alt.Chart(data(rows) if not columns else alt.Undefined, width=size[0], height=size[1])
    chart = chart.mark_line(point={"size": 22} if marks else False, strokeWidth=1.6, clip=True)
    chart = chart.encode(
        x=x,
        y=y,
        color=alt.Color("line:N", scale=alt.Scale(domain=names, range=colors), legend=shown),
        strokeDash=alt.StrokeDash(
            "line:N",
            scale=alt.Scale(domain=names, range=[list(dash) or [1, 0] for dash in dashes]),
            legend=shown,
        ),
    )
    if not columns:
        return chart
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    header = alt.Header(title=None, labelFontSize=12)
    facet = alt.Facet("panel:N", sort=panels, header=header)
    return chart.facet(facet, data=data(rows), columns=columns).resolve_scale(y="independent")


def looks(names: Sequence[str], colors: Sequence[str] = COLORS) -> dict[str, Look]:
    """Solid lines in the colours, and dashed ones when these are used up."""
    dashes = ((), (6, 3), (2, 2))
    places = [divmod(number, len(colors)) for number in range(len(names))]
    return {name: (colors[i], dashes[d]) for name, (d, i) in zip(names, places, strict=True)}


def write_picture(chart: Any, file: Path, title: str | None = None) -> None:
    """Writes a chart as a PNG file with a palette, a quarter of the usual size."""
    if title:
        chart = chart.properties(title=alt.Title(title, anchor="start", offset=12))
    chart = chart.configure_view(stroke="#cccccc").configure_axis(
        gridColor="#eeeeee", labelFontSize=11, titleFontSize=12, titleFontWeight="normal"
    )
    chart = chart.configure_legend(labelFontSize=11).configure_title(fontSize=13)
    drawn = io.BytesIO()
    chart.save(drawn, format="png", scale_factor=SCALE)
    file.parent.mkdir(parents=True, exist_ok=True)
    with_palette(Image.open(drawn)).save(file, optimize=True)
    print(f"wrote {file.parent.name}/{file.name}")


def with_palette(image: Image.Image) -> Image.Image:
    """An image with few colours, each near its own: also those of small things, such as legends."""
    method = Image.Quantize.MAXCOVERAGE
    return image.convert("RGB").quantize(PALETTE, method=method, dither=Image.Dither.NONE)
