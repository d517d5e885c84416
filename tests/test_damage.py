"""Nothing that was stored is unpickled."""

import ast
import pathlib

import pytest

import mu2_optax

ROOT = pathlib.Path(mu2_optax.__file__).parents[1]

UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize("folder", ["mu2_optax", "examples", "benchmarks"])
def test_nothing_that_was_stored_is_unpickled(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            imports = isinstance(node, ast.Import | ast.ImportFrom)
            names = [alias.name for alias in node.names] if imports else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & UNSAFE, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert node.value.value is False, path
