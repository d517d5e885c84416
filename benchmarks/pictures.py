"""Pictures for the pages: small PNG files."""

import io
from pathlib import Path
from typing import Any

from PIL import Image

DPI = 120  # pages show pictures about 900 pixels wide
COLORS = 128  # of the palette


def write_picture(figure: Any, file: Path) -> None:
    """Writes a figure of Matplotlib as a PNG file with a palette, a quarter of the usual size."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DPI, format="png")
    file.parent.mkdir(parents=True, exist_ok=True)
    with_palette(Image.open(drawn)).save(file, optimize=True)


def with_palette(image: Image.Image) -> Image.Image:
    """An image with few colours, each near its own: also those of small things, such as legends."""
    method = Image.Quantize.MAXCOVERAGE
    return image.convert("RGB").quantize(COLORS, method=method, dither=Image.Dither.NONE)
