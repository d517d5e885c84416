"""The sweep library runs any function; only its command knows optimizers."""

import ast
import pathlib

from mu2_optax import sweep

FOLDER = pathlib.Path(sweep.__file__).parent
LIBRARY = [path for path in FOLDER.glob("*.py") if path.name != "__main__.py"]
LIBRARY += (FOLDER / "_report").glob("[!_]*.py")


def imports(path):
    """The modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_the_library_imports_no_optimizer_and_not_its_command():
    assert len(LIBRARY) > 15
    for path in LIBRARY:
        for module in imports(path):
            assert module.split(".")[0] != "optax", path
            assert not module.startswith("mu2_optax") or module.startswith("mu2_optax.sweep."), path
            assert not module.startswith("mu2_optax.sweep._command"), path


def test_the_command_takes_the_optimizers_from_the_packages_front_door():
    for path in (FOLDER / "_command").glob("*.py"):
        for module in imports(path):
            assert not module.startswith("mu2_optax._"), path


def test_no_two_modules_import_each_other():
    """Following one cell through the library goes one way."""
    needs = {path.stem: {m.rpartition(".")[2] for m in imports(path)} for path in LIBRARY}
    left = {name: needs[name] & needs.keys() for name in needs}
    while left:
        free = [name for name, used in left.items() if not used & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        left = {name: used for name, used in left.items() if name not in free}
