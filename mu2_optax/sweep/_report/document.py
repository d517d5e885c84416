"""The document around a page's body: one file that needs no other, and no network."""

from html import escape
from importlib.resources import files

from mu2_optax.sweep._report.looks import Looks, style_sheet


def document(title: str, body: str, looks: Looks) -> str:
    """A page around a body; nothing in it may be loaded from anywhere."""
    here = files(__package__)
    style = (here / "page.css").read_text("utf-8") + style_sheet(looks.values())
    script = (here / "page.js").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""
