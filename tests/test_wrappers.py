"""docs/wrappers.md lists every transform of Optax, and what it says of each of them is true."""

import functools
import inspect
import pathlib
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from problems import run

import mu2_optax
from mu2_optax import accumulate_gradients, hold_fixed, mu2, mu2_sgd

PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "wrappers.md").read_text()
NAMESPACES = (optax, optax.contrib, optax.transforms)
NO_TRANSFORMS = """
    matrix_inverse_pth_root schedule_free_eval_params sigmoid_binary_cross_entropy
    update_infinity_moment update_moment update_moment_per_elem_norm bias_correction MaskOrFn
    OptState Params ScalarOrSchedule Updates
"""
"""Callables of Optax without an annotation that make no transform."""
CONDITIONS = {"skip_not_finite", "skip_large_updates"}


def is_transform(thing):
    """Whether something public makes a transform, as far as its annotation tells."""
    if inspect.isclass(thing) or not callable(thing):
        return thing is optax.MultiSteps
    try:
        returned = inspect.signature(thing).return_annotation
    except ValueError:
        return False
    return returned is inspect.Signature.empty or "GradientTransformation" in str(returned)


def public_transforms():
    for namespace in NAMESPACES:
        for name in dir(namespace):
            if not name.startswith("_") and is_transform(getattr(namespace, name)):
                yield name


def rows(heading):
    """The verdict and the names of each row of the table under a heading."""
    table = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for line in re.findall(r"^\| (?!-)(.*) \|$", table, flags=re.MULTILINE):
        verdict, names = line.split(" | ")
        outside_brackets = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", names)
        yield verdict, re.findall(r"`(\w+)`", outside_brackets)


HEADINGS = ("Optimizers as `inner`", "Transforms", "Wrappers")


def listed(heading, verdict):
    return [name for found, names in rows(heading) if found == verdict for name in names]


def test_wrappers_page_lists_every_transform_of_optax_once():
    page = [name for heading in HEADINGS for _, names in rows(heading) for name in names]
    assert len(page) == len(set(page)), sorted(name for name in page if page.count(name) > 1)
    assert set(page) == (set(public_transforms()) | CONDITIONS) - set(NO_TRANSFORMS.split())


# The problem: a linear regression without noise, whose parameters are a matrix and a vector.

TARGET = {"w": jnp.array([[1.0], [-2.0], [3.0]]), "b": jnp.array([0.5])}
START = {"w": jnp.full((3, 1), 0.1), "b": jnp.full(1, 0.1)}
FEATURES = jnp.asarray(np.random.default_rng(0).normal(size=(64, 3)), jnp.float32)
STEPS = 1500
KEY = 0


def loss(params, batch):
    del batch
    error = jax.tree.map(jnp.subtract, params, TARGET)
    return jnp.mean((FEATURES @ error["w"] + error["b"]) ** 2)


grad_fn = jax.grad(loss)


def with_value(tx):
    """The optimizer, with the value of the loss as an extra arg."""
    tx = optax.with_extra_args_support(tx)

    def update(grads, state, params, **extra_args):
        return tx.update(grads, state, params, value=loss(params, ()), **extra_args)

    return optax.GradientTransformationExtraArgs(tx.init, update)


def distance(tx, steps=STEPS, grad_fn=grad_fn):
    """How far from the solution the params end."""
    points, _ = run(with_value(tx), START, jnp.zeros(steps), grad_fn)
    return float(optax.tree.norm(jax.tree.map(lambda p, t: p[-1] - t, points, TARGET)))


def decaying(rate):
    return optax.linear_schedule(rate, 0.0, STEPS)


def find(name):
    return getattr(optax, name, None) or getattr(optax.contrib, name)


def silently(make, *args, **kwargs):
    """Optax's own warnings of deprecation are not what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return make(*args, **kwargs)


# Optimizers as `inner`

ARGUMENTS = {  # those that a fit optimizer is made with; otherwise a decaying learning rate
    "noisy_sgd": ((decaying(0.1),), {"key": KEY}),
    "adadelta": ((decaying(100.0),), {}),
    "adagrad": ((decaying(1.0),), {}),
    "schedule_free_sgd": ((0.3,), {}),
    "schedule_free_adamw": ((0.3,), {}),
    "cocob": ((), {}),
    "dog": ((1.0,), {}),
    "dowg": ((1.0,), {}),
    "polyak_sgd": ((), {}),
    "lbfgs": ((0.1,), {"linesearch": None}),
    "signum": ((decaying(0.05),), {"beta": 0.0}),
    "sm3": ((0.3,), {"momentum": 0.0}),
    "lars": ((decaying(300.0),), {"momentum": 0.0}),
    "muon": ((decaying(0.1),), {"beta": 0.0, "adam_b1": 0.0}),
    "madgrad": ((decaying(0.05),), {"momentum": 0.0}),
    "momo": ((1.0,), {"beta": 0.0}),
    "momo_adam": ((0.1,), {"b1": 0.0}),
    "galore": ((decaying(0.1),), {"base_optimizer": optax.scale_by_rms()}),
    "prodigy": ((decaying(1.0),), {"betas": (0.0, 0.999)}),
    "dadapt_adamw": ((decaying(1.0),), {"betas": (0.0, 0.999)}),
    "sign_sgd": ((decaying(0.05),), {}),
    "lion": ((decaying(0.05),), {}),
    "optimistic_adam": ((0.1, 1.0), {}),
}
WITHOUT_B1 = listed(HEADINGS[0], "fit without its momentum: `b1=0.0`")
FIT = [
    name
    for verdict in (
        "fit",
        "fit without its momentum: another argument",
        "fit, with an extra arg",
        "fit without its linesearch",
        "fit, though it averages once more",
    )
    for name in listed(HEADINGS[0], verdict)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIT + WITHOUT_B1)
def test_inner_that_is_fit_converges_without_a_warning(name):
    args, kwargs = ARGUMENTS.get(name, ((decaying(0.1),), {}))
    if name in WITHOUT_B1:
        kwargs = {**kwargs, "b1": 0.0}
    tx = mu2(silently(find(name), *args, **kwargs))  # a warning would be an error
    assert distance(tx) < 0.1


SEEN = {*WITHOUT_B1, "signum", "sm3", "lars", "prodigy", "dadapt_adamw", "ademamix", "adan"}
SEEN -= {"adopt", "acprop"}  # their first step is none
MEMORIES = ("adan", "optimistic_adam", "optimistic_adam_v2")  # of gradients, b1 or not


@pytest.mark.parametrize("name", [*sorted(SEEN), *(f"{name} b1=0" for name in MEMORIES)])
def test_inner_with_a_momentum_gets_a_warning(name):
    name, *without = name.split()
    args, _ = ARGUMENTS.get(name, ((decaying(0.1),), {}))
    with pytest.warns(UserWarning, match="`inner` should have no momentum"):
        mu2(silently(find(name), *args, **({"b1": 0.0} if without else {})))


# Transforms inside `inner`

TRANSFORMS = {  # what stands before a step of SGD inside `inner`; otherwise without arguments
    "adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.5),
    "add_decayed_weights": lambda: optax.add_decayed_weights(1e-3),
    "add_noise": lambda: optax.add_noise(0.01, 0.55, key=KEY),
    "centralize": lambda: optax.masked(optax.centralize(), {"w": False, "b": True}),
    "clip": lambda: optax.clip(0.5),
    "clip_by_block_rms": lambda: optax.clip_by_block_rms(0.5),
    "clip_by_global_norm": lambda: optax.clip_by_global_norm(0.5),
    "scale": lambda: optax.scale(0.5),
    "scale_by_learning_rate": lambda: optax.scale_by_learning_rate(0.5, flip_sign=False),
    "scale_by_schedule": lambda: optax.scale_by_schedule(lambda count: 0.5),
    "reduce_on_plateau": lambda: optax.contrib.reduce_on_plateau(patience=200),
    "scale_by_adadelta": lambda: optax.chain(optax.scale_by_adadelta(), optax.scale(1000.0)),
    "scale_by_cocob": lambda: optax.chain(
        optax.contrib.scale_by_cocob(), optax.scale_by_schedule(lambda count: -10.0)
    ),
    "scale_by_distance_over_gradients": lambda: optax.chain(
        optax.scale_by_distance_over_gradients(), optax.scale(10.0)
    ),
    "keep_params_nonnegative": None,
    "set_to_zero": None,
    "freeze": None,
    "stateless": lambda: optax.stateless(lambda g, p: jax.tree.map(jnp.sign, g)),
    "stateless_with_tree_map": lambda: optax.stateless_with_tree_map(lambda g, p: jnp.sign(g)),
    "scale_by_adamax": lambda: optax.scale_by_adamax(b1=0.0),
    "scale_by_sm3": lambda: optax.scale_by_sm3(b1=0.0),
    "scale_by_madgrad": lambda: optax.chain(
        optax.contrib.scale_by_madgrad(0.05, momentum=0.0), optax.scale(-10.0)
    ),
    "scale_by_muon": lambda: optax.contrib.muon(-1.0, beta=0.0, adam_b1=0.0),
    "scale_by_galore": lambda: optax.contrib.scale_by_galore(base_optimizer=optax.scale_by_rms()),
}
INSIDE = [
    name
    for name in listed(HEADINGS[1], "inside `inner`")
    + listed(HEADINGS[1], "inside `inner`, with `value`")
    + listed(HEADINGS[1], "inside `inner`, without its momentum")
    if TRANSFORMS.get(name, name) is not None
]
WITHOUT_MOMENTUM = listed(HEADINGS[1], "inside `inner`, without its momentum")


def default_transform(name):
    return find(name)(**({"b1": 0.0} if name in WITHOUT_MOMENTUM else {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
def test_transform_inside_inner_converges_without_a_warning(name):
    transform = TRANSFORMS.get(name, functools.partial(default_transform, name))()
    assert distance(mu2(optax.chain(transform, optax.sgd(decaying(0.1))))) < 0.15


def final(tx, params=START, grad_fn=grad_fn, steps=200):
    points, state = run(with_value(tx), params, jnp.zeros(steps), grad_fn)
    return jax.tree.map(lambda p: p[-1], points), state


@functools.cache
def unwrapped():
    """Where `mu2_sgd` ends by itself."""
    return final(mu2_sgd(0.1))[0]


def assert_close(tree, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), tree, other)


def test_transform_freeze_inside_inner_holds_w_and_x():
    frozen = optax.chain(optax.sgd(0.1), optax.freeze({"w": False, "b": True}))
    params, state = final(mu2(frozen))
    assert float(params["b"][0]) == float(state.w["b"][0]) == float(START["b"][0])
    params, _ = final(mu2(optax.chain(optax.sgd(0.1), optax.set_to_zero())))
    np.testing.assert_array_equal(params["w"], START["w"])


def test_transform_nonnegative_inside_inner_keeps_w_and_x():
    params, state = final(mu2(optax.chain(optax.sgd(0.1), optax.keep_params_nonnegative())))
    assert all(bool(jnp.all(leaf >= -1e-6)) for leaf in jax.tree.leaves((params, state.w)))


@pytest.mark.parametrize(
    "make", [optax.scale_by_backtracking_linesearch, optax.scale_by_zoom_linesearch]
)
def test_transform_linesearch_inside_inner_raises(make):
    """It needs value, grad and value_fn at one point; here the step is of w, the gradient at x."""
    with pytest.raises((TypeError, ValueError)):
        final(mu2(optax.chain(optax.sgd(1.0), make(5))), steps=1)


@pytest.mark.parametrize(
    "name", ["trace", "ema", "scale_by_ademamix", "scale_by_belief", "scale_by_adan"]
)
def test_transform_that_is_a_momentum_gets_a_warning(name):
    make = {"trace": lambda: optax.trace(0.9), "ema": lambda: optax.ema(0.9)}.get(name, find(name))
    with pytest.warns(UserWarning, match="`inner` should have no momentum"):
        mu2(optax.chain(make(), optax.sgd(0.1)))


# Wrappers

WORKING = {
    "chain": lambda: optax.chain(mu2_sgd(0.1)),
    "named_chain": lambda: optax.named_chain(("mu2", mu2_sgd(0.1))),
    "inject_hyperparams": lambda: optax.inject_hyperparams(mu2_sgd)(0.1),
    "inject_stateful_hyperparams": lambda: silently(optax.inject_stateful_hyperparams, mu2_sgd)(
        0.1
    ),
    "with_extra_args_support": lambda: optax.with_extra_args_support(mu2_sgd(0.1)),
    "conditionally_mask": lambda: optax.conditionally_mask(mu2_sgd(0.1), lambda step: True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", listed(HEADINGS[2], "work"))
def test_wrapper_that_works_changes_nothing(name):
    wrapped, _ = final(WORKING[name]())
    assert_close(wrapped, unwrapped())


LABELS = {"w": "go", "b": "stop"}
PARTS = {
    "masked": lambda tx: optax.chain(
        optax.masked(tx, {"w": True, "b": False}), optax.freeze({"w": False, "b": True})
    ),
    "partition": lambda tx: optax.partition({"go": tx, "stop": optax.set_to_zero()}, LABELS),
    "multi_transform": lambda tx: optax.multi_transform(
        {"go": tx, "stop": optax.set_to_zero()}, LABELS
    ),
    "selective_transform": lambda tx: optax.selective_transform(
        tx, freeze_mask={"w": False, "b": True}
    ),
    "flatten": optax.flatten,
}


@pytest.mark.parametrize("name", listed(HEADINGS[2], "work only inside `inner`"))
def test_wrapper_of_parts_works_inside_and_raises_around(name):
    mask = {"w": False, "b": name != "flatten"}
    expected, _ = final(hold_fixed(mu2_sgd(0.1), mask))
    inside, _ = final(mu2(PARTS[name](optax.sgd(0.1))))
    assert_close(inside, expected)
    with pytest.raises((TypeError, ValueError)) as caught:
        final(PARTS[name](mu2_sgd(0.1)))
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "mu2_optax.hold_fixed" in told if name != "flatten" else "`optax.flatten`" in told


def bound(tx):
    """The optimizer with its extra args bound in, for wrappers that drop them."""
    update = functools.partial(tx.update, grad_fn=grad_fn, batch=())
    return optax.GradientTransformation(tx.init, update)


def bound_step(wrap):
    @jax.jit
    def step(params, state):
        tx = wrap(bound(mu2_sgd(0.1)))
        at = getattr(params, "fast", params)
        updates, state = tx.update(grad_fn(at, ()), state, params)
        return optax.apply_updates(params, updates), state

    return step


@pytest.mark.parametrize("reset_state", [False, True])
def test_wrapper_lookahead_works_unless_it_resets(reset_state):
    """With a slow step of 1 the slow params are the fast ones; a reset would restart w at x."""
    wrap = lambda tx: optax.lookahead(tx, 5, 1.0, reset_state=reset_state)
    params = optax.LookaheadParams.init_synced(START)
    state = wrap(bound(mu2_sgd(0.1))).init(params)
    step = bound_step(wrap)
    for _ in range(20):
        params, state = step(params, state)
    plain, _ = final(mu2_sgd(0.1), steps=20)
    off = optax.tree.norm(jax.tree.map(jnp.subtract, params.slow, plain))
    assert (float(off) > 0.1) if reset_state else (float(off) < 1e-5)


def test_wrapper_that_drops_extra_args_raises():
    for wrap in (
        lambda tx: optax.lookahead(tx, 5, 0.5),
        optax.contrib.split_real_and_imaginary,
        lambda tx: optax.contrib.sam(tx, optax.sgd(0.1)),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            wrap(mu2_sgd(0.1)).update(START, None, START, grad_fn=grad_fn, batch=())


WRAPPED = {
    "chain": lambda tx: optax.chain(tx, optax.identity()),
    "named_chain": lambda tx: optax.named_chain(("mu2", tx)),
    "reject_nonfinite": mu2_optax.reject_nonfinite,
    "accumulate_gradients": lambda tx: accumulate_gradients(tx, 1),
    "hold_fixed": lambda tx: hold_fixed(tx, False),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_optax_tree_get_finds_mu2_state_in_every_wrapper(name):
    state = WRAPPED[name](mu2_optax.mu2_adam(0.1)).init({"kernel": jnp.ones(2)})
    inside = optax.tree.get(state, "Mu2State")
    for letter in ("d", "w"):
        assert optax.tree.get(state, letter) is getattr(inside, letter)
    assert optax.tree.get(state, "CorrectedMomentumState") is inside.corrected
    assert optax.tree.get(state, "AnytimeState") is inside.averaged


def test_eval_params_of_an_optimizer_without_an_average_is_the_default():
    params = {"kernel": jnp.ones(2)}
    state = optax.adam(0.1).init(params)
    assert mu2_optax.eval_params(state, params, default=params) is params
    with pytest.raises(ValueError, match=r"exactly one average .*or pass `default=params`"):
        mu2_optax.eval_params(state, params)
    auto = mu2_optax.mu2_auto()
    two = (auto.init(params), auto.init(params))
    with pytest.raises(ValueError, match=r"exactly one average of the params, got 2"):
        mu2_optax.eval_params(two, params, default=params)
