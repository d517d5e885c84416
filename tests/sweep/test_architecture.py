"""The sweep library runs any function; only its command knows optimizers."""

import ast
import pathlib

from mu2_optax import sweep

FOLDER = pathlib.Path(sweep.__file__).parent
PREFIX = "mu2_optax.sweep."
MODULES = {
    PREFIX + ".".join(path.relative_to(FOLDER).with_suffix("").parts): path
    for path in FOLDER.rglob("*.py")
    if not path.name.startswith("__")
}


def imports(path):
    """The modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_sweep_imports_no_optimizer_and_not_its_command():
    library = {name: path for name, path in MODULES.items() if "._command." not in name}
    assert len(library) > 10
    for path in library.values():
        for module in imports(path):
            assert module.split(".")[0] != "optax", path
            assert not module.startswith("mu2_optax") or module.startswith(PREFIX), path
            assert not module.startswith(f"{PREFIX}_command"), path


def test_sweep_command_takes_the_optimizers_from_the_packages_front_door():
    for path in (FOLDER / "_command").glob("*.py"):
        for module in imports(path):
            assert not module.startswith("mu2_optax._"), path


def test_sweep_modules_do_not_import_each_other():
    """Following one cell through the library goes one way."""
    left = {name: set(imports(path)) & MODULES.keys() for name, path in MODULES.items()}
    while left:
        free = [name for name, used in left.items() if not used & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        left = {name: used for name, used in left.items() if name not in free}
