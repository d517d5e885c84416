"""The docstrings' reStructuredText, which editors show well, as the Markdown of the site."""

import re
from typing import Any

import griffe

INLINE_MATH = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:func|class|meth|attr|mod):`~?([\w.]+)`")
LINK = re.compile(r"`([^`<]+?)\s*<(https?://[^>]+)>`_")
DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. math::[ ]*(?P<first>.*)\n"
    r"(?P<rest>(?:(?P=indent) +\S.*\n?|\n(?=(?P=indent) +\S))*)",
    re.MULTILINE,
)


class Markdown(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Equations, cross-references and links of one docstring."""
        if obj.docstring is None:
            return
        text = DIRECTIVE.sub(_displayed, obj.docstring.value + "\n")
        text = INLINE_MATH.sub(lambda match: f"${' '.join(match[1].split())}$", text)
        text = LINK.sub(lambda match: f"[{' '.join(match[1].split())}]({match[2]})", text)
        text = ROLE.sub(lambda match: f"[`{match[1]}`][{_public_path(match[1], obj)}]", text)
        obj.docstring.value = text.rstrip("\n")


def _displayed(match: re.Match[str]) -> str:
    """A displayed equation; like Sphinx, aligned where it has marks for it."""
    lines = [match["first"], *match["rest"].splitlines()]
    latex = " ".join(line.strip() for line in lines if line.strip())
    if "&" in latex and not latex.startswith(r"\begin"):
        latex = rf"\begin{{aligned}} {latex} \end{{aligned}}"
    indent = match["indent"]
    return f"{indent}$$\n{indent}{latex}\n{indent}$$\n\n"


def _public_path(name: str, obj: griffe.Object) -> str:
    """The name under which the reference documents what a docstring calls ``name``.

    It is that of the public module, or that of the file for what is documented without being
    exported: the classes of states.
    """
    if name.startswith(("mu2_optax.", "optax.", "jax.")):
        return name
    own = obj.module.members.get(name.split(".")[0])
    module = obj.module
    while "._" in module.path and module.parent is not None:
        module = module.parent
    while name.split(".")[0] not in module.members and module.parent is not None:
        module = module.parent
    if name.split(".")[0] not in module.members and own is not None:
        return own.target_path if own.is_alias else own.path
    return f"{module.path}.{name}"
