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
LIBRARY = {name: path for name, path in MODULES.items() if "._command." not in name}

# Each room may use those before it. A cell comes in by the command and goes from the engine to the
# results; analysis and report read results, and know nothing of how they came about.
BASE = {"_grid", "_environment"}
ROOMS = {
    "_grid": set(),
    "_environment": set(),
    "_data": set(),
    "_results": BASE,
    "_run": BASE,
    "_remote": BASE | {"_run", "_results"},
    "_engine": BASE | {"_run", "_remote", "_results"},
    "_analysis": {"_grid", "_results"},
    "_halving": {"_grid", "_engine", "_analysis", "_results"},
    "_report": {"_analysis", "_results"},
    "_command": BASE | {"_data", "_run", "_results", "_engine", "_analysis"},
}


def imports(path):
    """The modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_the_library_imports_no_optimizer_and_not_its_command():
    assert len(LIBRARY) > 15
    for path in LIBRARY.values():
        for module in imports(path):
            assert module.split(".")[0] != "optax", path
            assert not module.startswith("mu2_optax") or module.startswith(PREFIX), path
            assert not module.startswith("mu2_optax.sweep._command"), path


def test_the_command_takes_the_optimizers_from_the_packages_front_door():
    for path in (FOLDER / "_command").glob("*.py"):
        for module in imports(path):
            assert not module.startswith("mu2_optax._"), path


def test_a_room_uses_only_those_that_it_may():
    found = {name.removeprefix(PREFIX).split(".")[0] for name in MODULES}
    assert found == ROOMS.keys()
    for name, path in MODULES.items():
        room = name.removeprefix(PREFIX).split(".")[0]
        used = {m.removeprefix(PREFIX).split(".")[0] for m in imports(path) if m.startswith(PREFIX)}
        assert used <= ROOMS[room] | {room}, path


def test_no_two_modules_import_each_other():
    """Following one cell through the library goes one way."""
    left = {name: set(imports(path)) & MODULES.keys() for name, path in MODULES.items()}
    while left:
        free = [name for name, used in left.items() if not used & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        left = {name: used for name, used in left.items() if name not in free}
