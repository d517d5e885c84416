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
    image = Image.open(drawn).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)
