"""What every optimizer of the library does; a new one is a line in ``CASES``."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from problems import full_precision

import mu2_optax as m
from mu2_optax import lmo


@dataclasses.dataclass(frozen=True)
class Case:
    """An optimizer as a function of its learning rate, and rates that suit the test problems.

    ``near`` is how near it comes to the minimum of Rosenbrock's function.
    """

    make: Callable
    rate: float = 0.1
    rosenbrock: float = 1e-3
    near: float = 3e-2  # the contract's: an average still holds a share of its first iterates


BALL = m.onto_l2_ball(50.0)
# A rate that grows and never shrinks leaves a cycle around the minimum where the valley bends.
CYCLE = 7e-2

CASES = {
    "mu2_sgd": Case(m.mu2_sgd),
    "mu2_sgd linear": Case(lambda learning_rate: m.mu2_sgd(learning_rate, m.linear_momentum())),
    "mu2_sgd weighted_momentum": Case(
        lambda learning_rate: m.mu2_sgd(
            learning_rate, m.weighted_momentum(lambda count: (count + 1.0) ** 2)
        ),
    ),
    "mu2_sgd polynomial": Case(
        lambda learning_rate: m.mu2_sgd(learning_rate, m.polynomial_momentum(3), projection=BALL)
    ),
    "mu2_sgd measured": Case(
        lambda learning_rate: m.mu2_sgd(
            learning_rate, m.polynomial_momentum(3, beta=m.measured_beta())
        )
    ),
    "storm measured": Case(lambda learning_rate: m.storm(learning_rate, m.measured_beta())),
    "mu2_adam": Case(m.mu2_adam, 5e-3, 5e-4),
    "mu2_adamw": Case(
        lambda learning_rate: m.mu2_adamw(learning_rate, weight_decay=1e-6), 5e-3, 5e-4
    ),
    "mu2_sgd weight_decay": Case(functools.partial(m.mu2_sgd, weight_decay=1e-6)),
    "mu2_extra_sgd": Case(
        lambda learning_rate: m.mu2_extra_sgd(learning_rate, projection=BALL), 0.1, 2e-4
    ),
    "mu2_extra_sgd fixed": Case(
        lambda learning_rate: m.mu2_extra_sgd(learning_rate, m.fixed_momentum())
    ),
    "mu2_frank_wolfe": Case(lambda learning_rate: m.mu2_frank_wolfe(lmo.l2_ball(12.0))),
    "mu2_auto": Case(lambda learning_rate: m.mu2_auto(), near=CYCLE),
    "mu2_auto decayed": Case(
        lambda learning_rate: m.mu2_auto(weight_decay=1e-4, projection=BALL), near=CYCLE
    ),
    "mu2_auto spectral": Case(
        lambda learning_rate: m.mu2_auto(
            spectral=lambda params: jax.tree.map(lambda p: jnp.ndim(p) > 1, params)
        ),
        near=CYCLE,
    ),
    "grown_rate adam": Case(
        lambda learning_rate: optax.chain(
            m.grown_rate(optax.scale_by_adam()),
            optax.scale_by_schedule(lambda count: 1 / jnp.sqrt(1.0 + count)),
        )
    ),
    "mu2_sgd lean": Case(functools.partial(m.mu2_sgd, lean=True)),
    "mu2_adam lean": Case(functools.partial(m.mu2_adam, lean=True), 5e-3, 5e-4),
    "mu2_sgd part": Case(lambda learning_rate: m.mu2_sgd(learning_rate, part=lambda batch: batch)),
    "mu2_extra_sgd part": Case(
        lambda learning_rate: m.mu2_extra_sgd(
            learning_rate, projection=BALL, part=lambda batch: batch
        ),
        0.1,
        2e-4,
    ),
    "storm": Case(lambda learning_rate: m.storm(learning_rate, 0.1)),
    "anytime_sgd": Case(
        lambda learning_rate: m.anytime_sgd(learning_rate, m.polynomial_momentum(3))
    ),
    "projected sgd": Case(lambda learning_rate: m.projected(optax.sgd(learning_rate), BALL)),
    "reject_nonfinite": Case(lambda learning_rate: m.reject_nonfinite(m.mu2_sgd(learning_rate))),
    "multi_steps": Case(lambda learning_rate: m.multi_steps(m.mu2_sgd(learning_rate), 2)),
    "freeze": Case(lambda learning_rate: m.freeze(m.mu2_sgd(learning_rate), False)),
    "chain": Case(
        lambda learning_rate: optax.chain(
            m.corrected_momentum(0.5),
            optax.clip_by_global_norm(1e3),
            m.anytime(optax.sgd(learning_rate), 0.2),
        )
    ),
}

# Variants of optimizers that stand above already, and wrappers, which have tests of their own.
# Their lines of the contract take minutes.
VARIANTS = {
    "reject_nonfinite",
    "multi_steps",
    "chain",
    "mu2_sgd weighted_momentum",
    "mu2_sgd polynomial",
    "storm measured",
    "mu2_adamw",
    "mu2_sgd weight_decay",
    "mu2_extra_sgd fixed",
    "mu2_auto decayed",
    "grown_rate adam",
    "mu2_auto spectral",
    "mu2_sgd lean",
    "mu2_adam lean",
    "mu2_sgd part",
    "mu2_extra_sgd part",
    "freeze",
}


def each_of(cases):
    """Parametrizes a test over the cases; the variants are slow tests."""
    params = [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name in VARIANTS else [])
        for name, case in cases.items()
    ]
    return pytest.mark.parametrize("case", params)


every_optimizer = each_of(CASES)

UNRATED = (
    "mu2_frank_wolfe",
    "mu2_auto",
    "mu2_auto decayed",
    "mu2_auto spectral",
    "grown_rate adam",
)
RATED = {name: case for name, case in CASES.items() if name not in UNRATED}
every_optimizer_with_a_rate = each_of(RATED)


# The problems: a loss of params alone, a start, and the minimum.


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def square(tree):
    return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree))


PROBLEMS = {
    "parabola": (square, jnp.array([-1.0, 10.0, 1.0]), jnp.zeros(3)),
    "matrix parabola": (square, jnp.ones((2, 2)), jnp.zeros((2, 2))),
    "rosenbrock": (rosenbrock, jnp.array([0.0, 0.0]), jnp.ones(2)),
    "mixed tree": (
        lambda tree: square(jax.tree.map(jnp.subtract, tree, TARGET)),
        {"a": jnp.array([1.0, -2.0]), "b": [jnp.array(3.0), jnp.ones((2, 1))]},
        {"a": jnp.array([0.5, 1.0]), "b": [jnp.array(-1.0), 2 * jnp.ones((2, 1))]},
    ),
}
TARGET = PROBLEMS["mixed tree"][2]


def start(dtype=jnp.float32):
    return {"a": jnp.array([1.0, -2.0, 0.5, 3.0], dtype), "b": [jnp.array([[0.3], [0.7]], dtype)]}


def grad_fn(params, batch):
    return jax.grad(lambda p: 0.5 * square(jax.tree.map(lambda a: a - batch.astype(a.dtype), p)))(
        params
    )


BATCHES = jnp.array([0.1, -0.3, 0.25, 0.4, -0.2])


def step(tx, params, state, batch):
    grads = grad_fn(params, batch)
    updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
    return optax.apply_updates(params, updates), state


def run(tx, params, batches=BATCHES):
    """The params and state after a scan over all batches."""

    def body(carry, batch):
        return step(tx, *carry, batch), None

    return jax.jit(lambda c: jax.lax.scan(body, c, batches)[0])((params, tx.init(params)))


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


@pytest.mark.parametrize("problem", PROBLEMS)
@every_optimizer
def test_converges(case, problem):
    loss, params, minimum = PROBLEMS[problem]
    tx = case.make(case.rosenbrock if problem == "rosenbrock" else case.rate)
    gradient = lambda params, batch: jax.grad(loss)(params)

    def body(_, carry):
        params, state = carry
        updates, state = tx.update(gradient(params, ()), state, params, grad_fn=gradient, batch=())
        return optax.apply_updates(params, updates), state

    final, _ = jax.jit(lambda c: jax.lax.fori_loop(0, 30_000, body, c))((params, tx.init(params)))
    assert_close(final, minimum, rtol=0, atol=case.near if problem == "rosenbrock" else 3e-2)


@every_optimizer
def test_a_jitted_loop_traces_once(case):
    tx = case.make(case.rate)
    traces = []

    @jax.jit
    def jitted(params, state, batch):
        traces.append(None)
        return step(tx, params, state, batch)

    params = start()
    state = tx.init(params)
    for batch in BATCHES:
        params, state = jitted(params, state, batch)
    assert len(traces) == 1
    assert jitted._cache_size() == 1


@every_optimizer
def test_vmapped_learning_rates_equal_separate_runs(case):
    rates = jnp.array([0.0, 0.01, 0.1, 0.5])
    final = lambda rate: run(case.make(rate), start())[0]
    together = jax.jit(jax.vmap(final))(rates)
    for i, rate in enumerate(rates):
        alone = final(float(rate))
        # Float32: a vmapped loop is fused otherwise than one that runs by itself.
        assert_close(jax.tree.map(lambda a, i=i: a[i], together), alone, rtol=1e-5, atol=1e-6)


@every_optimizer_with_a_rate
def test_a_schedule_is_followed(case):
    constant, _ = run(case.make(optax.constant_schedule(case.rate)), start())
    assert_close(constant, run(case.make(case.rate), start())[0], rtol=1e-6)
    halted, _ = run(case.make(lambda count: jnp.where(count < 1, case.rate, 0.0)), start())
    assert not np.allclose(halted["a"], constant["a"], rtol=1e-3)


@every_optimizer
def test_injected_hyperparameters_change_nothing(case):
    def factory(learning_rate):
        return case.make(learning_rate)

    injected, _ = run(optax.inject_hyperparams(factory)(learning_rate=case.rate), start())
    assert_close(injected, run(case.make(case.rate), start())[0], rtol=1e-5, atol=1e-6)


@every_optimizer
def test_tree_map_params_reaches_the_params_shaped_leaves(case):
    tx = case.make(case.rate)
    params = start()
    state = tx.init(params)
    specs = jax.tree.map(lambda p: f"spec of {p.shape}", params)
    mapped = optax.tree.map_params(
        tx, lambda leaf, spec: spec, state, specs, transform_non_params=lambda _: "count"
    )
    is_leaf = lambda node: isinstance(node, str)
    leaves = jax.tree.leaves(mapped, is_leaf=is_leaf)
    for leaf, original in zip(leaves, jax.tree.leaves(state), strict=True):
        of_params = original.shape in {p.shape for p in jax.tree.leaves(params)}
        assert leaf == (f"spec of {original.shape}" if of_params else "count")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@every_optimizer
def test_updates_keep_the_dtype_of_params(case, dtype):
    with full_precision(dtype):
        tx = case.make(case.rate)

        def first_updates(params):
            known = {"grad_fn": grad_fn, "batch": BATCHES[0]}
            return tx.update(grad_fn(params, BATCHES[0]), tx.init(params), params, **known)[0]

        updates = jax.eval_shape(first_updates, start(dtype))
        assert {u.dtype.name for u in jax.tree.leaves(updates)} == {dtype}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@every_optimizer
def test_the_state_keeps_its_structure_and_dtypes(case, dtype):
    with full_precision(dtype):
        tx = case.make(case.rate)
        params = start(dtype)
        state = tx.init(params)
        kind = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype, a.weak_type), tree)
        _, after = jax.eval_shape(functools.partial(step, tx), params, state, BATCHES[0])
        assert kind(after) == kind(state)
        for leaf in jax.tree.leaves(state):
            assert not leaf.weak_type
            assert leaf.dtype == jnp.int32 or jnp.finfo(leaf.dtype).bits >= 32
        jax.eval_shape(  # lax.cond and lax.scan carry it
            lambda go, p, s: jax.lax.cond(go, lambda: step(tx, p, s, BATCHES[0]), lambda: (p, s)),
            True,
            params,
            state,
        )
        jax.eval_shape(lambda p: run(tx, p), params)


@pytest.mark.parametrize("jit_init", [False, True])
@every_optimizer
def test_params_and_state_can_be_donated(case, jit_init):
    tx = case.make(case.rate)
    params = start()
    state = (jax.jit(tx.init) if jit_init else tx.init)(params)
    expected, _ = run(tx, params)
    jitted = jax.jit(functools.partial(step, tx), donate_argnums=(0, 1))
    for batch in BATCHES:
        params, state = jitted(params, state, batch)
    assert_close(params, expected, rtol=1e-6)


@every_optimizer
def test_shapes_can_be_had_without_computing(case):
    tx = case.make(case.rate)
    abstract = jax.eval_shape(start)
    state = jax.eval_shape(tx.init, abstract)
    real = tx.init(start())
    assert jax.tree.map(lambda a: (a.shape, a.dtype), state) == jax.tree.map(
        lambda a: (a.shape, a.dtype), real
    )
    _, after = jax.eval_shape(functools.partial(step, tx), abstract, state, BATCHES[0])
    assert jax.tree.structure(after) == jax.tree.structure(real)


@every_optimizer
def test_the_state_keeps_the_sharding_of_params(case):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    params = jax.device_put({"a": jnp.arange(16.0), "b": [jnp.ones((8, 3))]}, sharding)
    tx = case.make(case.rate)
    state = tx.init(params)
    after = jax.jit(functools.partial(step, tx))(params, state, BATCHES[0])
    for leaf in jax.tree.leaves((state, *after)):
        if leaf.shape in {p.shape for p in jax.tree.leaves(params)}:
            assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
            assert leaf.addressable_shards[0].data.size == leaf.size // 8


@every_optimizer
def test_unknown_extra_args_are_ignored(case):
    tx = case.make(case.rate)
    params = start()
    grads = grad_fn(params, BATCHES[0])
    known = {"grad_fn": grad_fn, "batch": BATCHES[0]}
    plain, _ = tx.update(grads, tx.init(params), params, **known)
    more, _ = tx.update(grads, tx.init(params), params, **known, value=1.0, anything=None)
    assert_close(plain, more, rtol=0)


def scaled_after(tx):
    return optax.chain(tx, optax.scale(1.0))


AROUND = {
    "chain": scaled_after,
    "named_chain": lambda tx: optax.named_chain(("mu2", tx), ("scale", optax.scale(1.0))),
    "apply_if_finite": lambda tx: optax.apply_if_finite(tx, 3),
    "reject_nonfinite": m.reject_nonfinite,
    "clip after": lambda tx: optax.chain(tx, optax.clip_by_global_norm(1e6)),
    "no decay after": lambda tx: optax.chain(tx, optax.add_decayed_weights(0.0)),
}


@functools.cache
def alone(case):
    return run(case.make(case.rate), start())[0]


@pytest.mark.parametrize("around", AROUND)
@every_optimizer
def test_optax_wrappers_change_nothing(case, around):
    plain = alone(case)
    wrapped, _ = run(AROUND[around](case.make(case.rate)), start())
    # The compiler may fuse differently: float32 rounding of values of order one.
    assert_close(plain, wrapped, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["storm", "projected sgd"])
def test_schedule_free_converges_around_what_does_not_average(name):
    tx = optax.contrib.schedule_free(CASES[name].make(0.05), learning_rate=0.05)
    final, state = run(tx, start(), jnp.zeros(4000))
    averaged = optax.contrib.schedule_free_eval_params(state, final)
    assert_close(averaged, jax.tree.map(jnp.zeros_like, averaged), rtol=0, atol=3e-2)


@every_optimizer_with_a_rate
def test_weight_decay_after_it_shrinks_the_params(case):
    """With a flat loss, x ← x - λx alone remains: exact geometric decay."""
    flat = lambda params, batch: jax.tree.map(jnp.zeros_like, params)
    tx = optax.chain(case.make(case.rate), optax.add_decayed_weights(-0.1))
    params = start()
    updates, _ = tx.update(
        flat(params, ()), tx.init(params), params, grad_fn=flat, batch=jnp.zeros(())
    )
    assert_close(updates, jax.tree.map(lambda p: -0.1 * p, params), rtol=1e-6, atol=1e-6)
