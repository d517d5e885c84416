"""The architecture that CONTRIBUTING.md promises, and the public names."""

import ast
import importlib
import inspect
import pathlib
import re
import types

import pytest

import mu2_optax

TESTS = pathlib.Path(__file__).parent
DOCS = TESTS.parent / "docs"
PACKAGE = pathlib.Path(mu2_optax.__file__).parent

# Each room may use those before it. `_paper` is the one to open first.
ROOMS = [
    "_internal",
    "_gradients",
    "_paper",
    "_rate",
    "lmo",
    "_optimizers",
    "_reading",
    "_wrappers",
]
CORE = [path for room in ROOMS for path in (PACKAGE / room).glob("*.py")]

# Adding a public name is a decision: write it down here.
PUBLIC = {
    "mu2_optax": """
        DoubleMomentum accumulate_gradients anytime anytime_sgd checked corrected_momentum
        distance_rate error_bar eval_params fixed_momentum found_rate frank_wolfe hold_fixed
        linear_momentum measured_beta mu2 mu2_adam mu2_auto mu2_extra_sgd mu2_frank_wolfe mu2_sgd
        onto_l2_ball per_tensor polynomial_momentum projected query_point
        reject_nonfinite show_average storm unit_directions value_and_grad with_error_bar
    """,
    "mu2_optax.lmo": "l1_ball l2_ball linf_ball simplex spectral_ball",
    "mu2_optax.theory": """
        batch_size dynamic_batches effective_variance error_bound
        excess_loss_bound frank_wolfe_bound high_probability_error_bound max_learning_rate
        measure_gradient_variance measure_sample_smoothness measure_smoothness
        measure_smoothness_variance run_dynamic stable_rates
    """,
    "mu2_optax.stopping": "NormBelow StopReason estimate_norm run_until",
    "mu2_optax.estimates": "corrected_estimate",
    "mu2_optax.nnx": "eval_model recalibrate value_and_grad",
    "mu2_optax.linen": "TrainState eval_state recalibrate",
    "mu2_optax.sweep": """
        Data Measure SweepInterrupted SweepResult halving load_digits load_mnist load_results
        lr_sensitivity merge plateau_width plot_curves plot_sweep save_results stability_range sweep
        write_csv write_report
    """,
}

# What outside of the package imports a private name of it. Tests of the sweep's own modules may.
PRIVATE_ELSEWHERE = {
    "tests/test_mixed_precision.py",  # how float16 is rounded, down to the smallest
    "tests/test_newton_schulz.py",  # which `mu2_auto` and `lmo` share
}

# Those that come from a paper cite it; what surrounds them refers to them.
CITING = """
    anytime anytime_sgd corrected_momentum distance_rate frank_wolfe measured_beta mu2 mu2_adam
    mu2_auto mu2_extra_sgd mu2_frank_wolfe mu2_sgd polynomial_momentum storm
    unit_directions
"""


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def public_names(module):
    """What a namespace offers: its ``__all__``, or what a re-exporting ``__init__`` holds."""
    listed = getattr(module, "__all__", None)
    names = (
        [name for name in vars(module) if not name.startswith("_")] if listed is None else listed
    )
    return [name for name in names if not isinstance(getattr(module, name), types.ModuleType)]


@pytest.mark.parametrize("namespace", PUBLIC)
def test_layout_public_names_are_written_down(namespace):
    names = set(public_names(importlib.import_module(namespace)))
    assert names == set(PUBLIC[namespace].split())


def test_layout_completion_shows_public_names_alone():
    submodules = {name.partition(".")[2] for name in PUBLIC} - {""}
    names = set(PUBLIC["mu2_optax"].split()) | submodules | {"__version__"}
    assert set(dir(mu2_optax)) == names


def test_layout_every_other_module_is_private():
    namespaces = {name.removeprefix("mu2_optax").strip(".") for name in PUBLIC}
    for path in PACKAGE.rglob("*.py"):
        *folders, stem = path.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(folders if stem in ("__init__", "__main__") else [*folders, stem])
        assert module in namespaces or any(p.startswith("_") for p in module.split(".")), path


def test_layout_no_function_hides_a_module():
    for namespace in PUBLIC:
        module = importlib.import_module(namespace)
        for path in pathlib.Path(module.__file__).parent.glob("*.py"):
            shadowing = vars(module).get(path.stem)
            assert shadowing is None or isinstance(shadowing, types.ModuleType), (namespace, path)


def test_layout_submodules_are_attributes():
    for namespace in PUBLIC:
        if namespace != "mu2_optax":
            name = namespace.rpartition(".")[2]
            assert name in dir(mu2_optax)
            assert getattr(mu2_optax, name) is importlib.import_module(namespace)
    with pytest.raises(AttributeError, match="no attribute 'momentum'"):
        _ = mu2_optax.momentum


def test_layout_nothing_imports_private_parts_of_optax():
    for path in PACKAGE.rglob("*.py"):
        assert not [name for name in imports(path) if "._src" in name], path


def private_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        yield from (name for name in names if re.match(r"mu2_optax\b.*\._(?!_)", name))


def test_layout_private_names_are_imported_by_the_package_alone():
    root = TESTS.parent
    outside = [path for part in ("benchmarks", "examples") for path in (root / part).rglob("*.py")]
    outside += TESTS.glob("*.py")
    found = {str(path.relative_to(root)) for path in outside if list(private_imports(path))}
    assert found <= PRIVATE_ELSEWHERE


def test_layout_no_test_module_imports_another():
    """What they share stands in modules of its own."""
    for path in TESTS.rglob("test_*.py"):
        assert not [name for name in imports(path) if name.startswith("test_")], path


def test_layout_every_private_module_is_in_a_room():
    assert not [path for path in PACKAGE.glob("_*.py") if path.name != "__init__.py"]
    private = {path.name for path in PACKAGE.glob("_*/") if path.name != "__pycache__"}
    assert private == {room for room in ROOMS if room.startswith("_")}


def test_layout_rooms_use_only_those_before_them():
    for path in CORE:
        room = path.parent.name
        used = {module.split(".")[1] for module in imports(path) if module.startswith("mu2_optax.")}
        assert used <= {*ROOMS[: ROOMS.index(room) + 1]}, path


def test_layout_mechanisms_do_not_import_each_other():
    mechanisms = {"mu2_optax._paper.estimate", "mu2_optax._paper.averaging"}
    for name in ("estimate", "averaging"):
        assert not mechanisms & set(imports(PACKAGE / "_paper" / f"{name}.py")), name


def test_layout_core_imports_jax_and_optax_alone():
    standard = {
        "collections",
        "dataclasses",
        "functools",
        "inspect",
        "math",
        "sys",
        "typing",
        "warnings",
    }
    allowed = standard | {"jax", "numpy", "optax", "mu2_optax"}
    assert len(CORE) >= 30
    for path in CORE:
        roots = {module.split(".")[0] for module in imports(path)}
        assert roots <= allowed, (path.name, roots - allowed)


def test_layout_public_docstrings_have_every_part():
    functions = [
        getattr(mu2_optax, name)
        for name in public_names(mu2_optax)
        if inspect.isfunction(getattr(mu2_optax, name))
    ]
    assert len(functions) >= 15
    for function in functions:
        parts = ["Args:", "Returns:", "Examples:", ">>>"]
        for part in [*parts, "References:"] if function.__name__ in CITING.split() else parts:
            if part == "Args:" and not inspect.signature(function).parameters:
                continue
            assert part in (function.__doc__ or ""), (function.__name__, part)


@pytest.mark.parametrize("namespace", PUBLIC)
def test_layout_reference_has_every_public_name(namespace):
    page = (DOCS / "api" / f"{namespace.rpartition('.')[2]}.md").read_text()
    listed = re.findall(rf"^(?:::: {re.escape(namespace)}\.|\s+- )(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(PUBLIC[namespace].split())
