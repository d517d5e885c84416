"""The architecture that CONTRIBUTING.md promises."""

import ast
import pathlib

import mu2_optax

PACKAGE = pathlib.Path(mu2_optax.__file__).parent
CORE = {
    "schedules",
    "ratio",
    "momentum",
    "corrected",
    "anytime",
    "optimizers",
    "extragradient",
    "gradients",
    "guard",
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_nothing_reaches_into_private_parts_of_optax_or_jax():
    for path in PACKAGE.rglob("*.py"):
        assert not [name for name in imports(path) if "._src" in name], path


def test_the_two_mechanisms_do_not_know_each_other():
    assert "mu2_optax.anytime" not in set(imports(PACKAGE / "corrected.py"))
    assert "mu2_optax.corrected" not in set(imports(PACKAGE / "anytime.py"))


def test_the_core_needs_jax_and_optax_alone():
    allowed = {"jax", "numpy", "optax", "mu2_optax", "collections", "typing", "dataclasses", "math"}
    for name in CORE:
        roots = {module.split(".")[0] for module in imports(PACKAGE / f"{name}.py")}
        assert roots <= allowed, (name, roots - allowed)


def test_every_public_name_has_a_docstring_with_its_parts():
    public = [name for name in vars(mu2_optax) if not name.startswith("_")]
    functions = [
        getattr(mu2_optax, name)
        for name in public
        if callable(getattr(mu2_optax, name)) and not isinstance(getattr(mu2_optax, name), type)
    ]
    assert len(functions) >= 15
    for function in functions:
        for part in ("Args:", "Returns:", "Examples:", "References:", ">>>"):
            if part == "Args:" and not function.__code__.co_argcount:
                continue
            assert part in (function.__doc__ or ""), (function.__name__, part)
