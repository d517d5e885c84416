"""Draws the equations while the pages are built: browsers need no script and no font for them."""

import functools
import html
import re
from xml.etree import ElementTree

import ziamath
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

ziamath.config.math.color = "currentColor"

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAYED = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
SIZE = 16  # of the drawing
SCALE = 1.1 / SIZE  # the letters are smaller than those of most fonts for text
SYMBOL = "{http://www.w3.org/2000/svg}symbol"
ElementTree.register_namespace("", "http://www.w3.org/2000/svg")


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Replaces what arithmatex has marked; the letters are drawn once, at the end of the page."""
    letters: dict[str, str] = {}

    def drawing(match: re.Match[str], inline: bool) -> str:
        svg, used = drawn(html.unescape(match[1]), inline)
        letters.update(used)
        return svg if inline else f'<div class="equation">{svg}</div>'

    content = INLINE.sub(lambda match: drawing(match, inline=True), content)
    content = DISPLAYED.sub(lambda match: drawing(match, inline=False), content)
    return f'{content}<svg class="letters" aria-hidden="true">{"".join(letters.values())}</svg>'


@functools.cache
def drawn(latex: str, inline: bool) -> tuple[str, dict[str, str]]:
    """An equation that stands on the text's baseline, in its colour; and the letters it uses."""
    latex = " ".join(latex.split())
    # The parser knows the outer environment alone; the inner one looks the same.
    known = latex.replace("{aligned}", "{align*}")
    try:
        equation = ziamath.Latex(known, size=SIZE, inline=inline)
    except Exception as error:
        raise PluginError(f"this equation cannot be drawn: {latex}") from error
    svg = ElementTree.fromstring(ElementTree.tostring(equation.svgxml()))
    width, height = (SCALE * float(svg.attrib.pop(side)) for side in ("width", "height"))
    style = f"width:{width:.3f}em;height:{height:.3f}em"
    if inline:
        style += f";vertical-align:{SCALE * equation.getyofst():.3f}em"
    svg.attrib |= {"class": "math", "role": "img", "aria-label": latex, "style": style}
    letters = {}
    for symbol in svg.findall(SYMBOL):
        letters[symbol.attrib["id"]] = ElementTree.tostring(symbol, encoding="unicode")
        svg.remove(symbol)
    return ElementTree.tostring(svg, encoding="unicode"), letters
