"""What every optimizer of the library does; tests/optimizers.py lists them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from optimizers import (
    BATCHES,
    CASES,
    MECHANISMS,
    each_of,
    each_with,
    every_mechanism,
    every_mechanism_with_a_rate,
    every_optimizer,
    grad_fn,
    square,
    start,
    step,
)
from problems import full_precision

import mu2_optax as m

# The problems: a loss of params alone, a start, and the minimum.


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


PROBLEMS = {
    "parabola": (square, jnp.array([-1.0, 10.0, 1.0]), jnp.zeros(3)),
    "rosenbrock": (rosenbrock, jnp.array([0.0, 0.0]), jnp.ones(2)),
    "mixed tree": (
        lambda tree: square(jax.tree.map(jnp.subtract, tree, TARGET)),
        {"a": jnp.array([1.0, -2.0]), "b": [jnp.array(3.0), jnp.ones((2, 2))]},
        {"a": jnp.array([0.5, 1.0]), "b": [jnp.array(-1.0), 2 * jnp.eye(2)]},
    ),
}
TARGET = PROBLEMS["mixed tree"][2]


def run(tx, params, batches=BATCHES, state=None):
    """The params and state after a scan over all batches, from a given state or a new one."""
    state = tx.init(params) if state is None else state

    def body(carry, batch):
        return step(tx, *carry, batch), None

    return jax.jit(lambda c: jax.lax.scan(body, c, batches)[0])((params, state))


@functools.cache
def alone(case):
    """The params after a scan, with the case's rate as a number."""
    return run(case.make(case.rate), start())[0]


def assert_close(tree, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, other)


@each_with(("case", "problem"), "mixed tree", ["parabola", "rosenbrock"])
def test_contract_converges(case, problem):
    loss, params, minimum = PROBLEMS[problem]
    tx = case.make(case.rosenbrock if problem == "rosenbrock" else case.rate)
    gradient = lambda params, batch: jax.grad(loss)(params)

    def body(_, carry):
        params, state = carry
        updates, state = tx.update(gradient(params, ()), state, params, grad_fn=gradient, batch=())
        return optax.apply_updates(params, updates), state

    final, _ = jax.jit(lambda c: jax.lax.fori_loop(0, 30_000, body, c))((params, tx.init(params)))
    assert_close(final, minimum, rtol=0, atol=case.near if problem == "rosenbrock" else 3e-2)


@every_mechanism_with_a_rate
def test_contract_vmapped_rates_equal_separate_runs(case):
    final = lambda rate: run(case.make(rate), start())[0]
    rates = jnp.array([0.0, case.rate, 0.5])
    together = jax.jit(jax.vmap(final))(rates)
    separate = jax.jit(final)
    for i, expected in enumerate((separate(rates[0]), alone(case), separate(rates[2]))):
        # Float32: a vmapped loop is fused otherwise than one that runs by itself.
        assert_close(jax.tree.map(lambda a, i=i: a[i], together), expected, rtol=1e-5, atol=1e-6)


@every_mechanism_with_a_rate
def test_contract_follows_a_schedule(case):
    @jax.jit
    def final(until):
        return run(case.make(lambda count: jnp.where(count < until, case.rate, 0.0)), start())[0]

    constant, halted = final(len(BATCHES)), final(1)
    assert_close(constant, alone(case), rtol=1e-6)
    assert not np.allclose(halted["a"], constant["a"], rtol=1e-3)


@every_mechanism_with_a_rate
def test_contract_uses_an_injected_learning_rate(case):
    def factory(learning_rate):
        return case.make(learning_rate)

    tx = optax.inject_hyperparams(factory)(learning_rate=1e3)  # which is written over
    state = tx.init(start())
    state.hyperparams["learning_rate"] = jnp.float32(case.rate)
    injected, _ = run(tx, start(), state=state)
    assert_close(injected, alone(case), rtol=1e-5, atol=1e-6)


@every_optimizer
def test_contract_tree_map_params_reaches_the_state(case):
    tx = case.make(case.rate)
    params = start()
    state = tx.init(params)
    specs = jax.tree.map(lambda p: f"spec of {p.shape}", params)
    mapped = optax.tree.map_params(
        tx, lambda leaf, spec: spec, state, specs, transform_non_params=lambda _: "count"
    )
    is_leaf = lambda node: isinstance(node, str)
    leaves = jax.tree.leaves(mapped, is_leaf=is_leaf)
    held = jax.tree_util.tree_leaves_with_path(state)
    for leaf, (path, original) in zip(leaves, held, strict=True):
        if "momentum" in jax.tree_util.keystr(path) and original.shape == ():
            continue  # the zero that stands for a leaf whose steps are not orthogonal
        of_params = original.shape in {p.shape for p in jax.tree.leaves(params)}
        assert leaf == (f"spec of {original.shape}" if of_params else "count")


@each_with(("case", "dtype"), "bfloat16", ["float16", "float32", "float64"])
def test_contract_updates_keep_the_dtype_of_params(case, dtype):
    with full_precision(dtype):
        tx = case.make(case.rate)

        def first_updates(params):
            known = {"grad_fn": grad_fn, "batch": BATCHES[0]}
            return tx.update(grad_fn(params, BATCHES[0]), tx.init(params), params, **known)[0]

        updates = jax.eval_shape(first_updates, start(dtype))
        assert {u.dtype.name for u in jax.tree.leaves(updates)} == {dtype}


@each_with(("case", "dtype"), "bfloat16", ["float32", "float64"])
def test_contract_state_keeps_its_structure_and_dtypes(case, dtype):
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


@every_optimizer
def test_contract_donated_loop_traces_once(case):
    tx = case.make(case.rate)
    traces = []

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def jitted(params, state, batch):
        traces.append(None)
        return step(tx, params, state, batch)

    for init in (tx.init, jax.jit(tx.init)):
        params = start()
        state = init(params)
        for batch in BATCHES:
            params, state = jitted(params, state, batch)
        assert_close(params, alone(case), rtol=1e-6)
    assert len(traces) == 1
    assert jitted._cache_size() == 1


@jax.tree_util.register_pytree_node_class
class Layer:
    """A node whose constructor takes nothing but arrays, as many with checked types do."""

    def __init__(self, weight, bias):
        for leaf in (weight, bias):
            assert hasattr(leaf, "shape"), leaf
        self.weight, self.bias = weight, bias

    def tree_flatten(self):
        return (self.weight, self.bias), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


@every_optimizer
def test_contract_nodes_of_params_only_ever_hold_arrays(case):
    tx = optax.with_extra_args_support(case.make(case.rate))
    params = Layer(jnp.ones((4, 3)), jnp.ones(3))
    gradient = lambda params, batch: params
    update = lambda p, state: tx.update(p, state, p, grad_fn=gradient, batch=())
    updates, _ = jax.eval_shape(update, params, jax.eval_shape(tx.init, params))
    assert (updates.weight.shape, updates.bias.shape) == ((4, 3), (3,))


@every_optimizer
def test_contract_shapes_need_no_computation(case):
    tx = case.make(case.rate)
    abstract = jax.eval_shape(start)
    state = jax.eval_shape(tx.init, abstract)
    real = tx.init(start())
    assert jax.tree.map(lambda a: (a.shape, a.dtype), state) == jax.tree.map(
        lambda a: (a.shape, a.dtype), real
    )
    _, after = jax.eval_shape(functools.partial(step, tx), abstract, state, BATCHES[0])
    assert jax.tree.structure(after) == jax.tree.structure(real)


@each_of([*MECHANISMS, "mu2_auto spectral"])
def test_contract_state_keeps_the_sharding_of_params(case):
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


GRADIENTS = {"anytime_sgd": 1, "distance_rate": 1, "mu2_auto": 1, "mu2_extra_sgd": 3, "mu2_sgd": 2}


@pytest.mark.parametrize("name", GRADIENTS)
def test_contract_step_takes_the_stated_number_of_gradients(name):
    tx, taken = CASES[name].make(0.1), []

    def counted(params, batch):
        taken.append(None)
        return grad_fn(params, batch)

    def one_step(params, batch):
        grads = counted(params, batch)
        return tx.update(grads, tx.init(params), params, grad_fn=counted, batch=batch)

    jax.eval_shape(one_step, start(), BATCHES[0])
    assert len(taken) == GRADIENTS[name]


@every_optimizer
def test_contract_ignores_unknown_extra_args(case):
    tx = case.make(case.rate)

    def program(**unknown):
        def updates(params, batch):
            grads = grad_fn(params, batch)
            known = {"grad_fn": grad_fn, "batch": batch}
            return tx.update(grads, tx.init(params), params, **known, **unknown)

        return str(jax.make_jaxpr(updates)(start(), BATCHES[0]))

    assert program() == program(value=1.0, anything=None)


@every_mechanism
def test_contract_idle_wrappers_change_nothing(case):
    tx = m.reject_nonfinite(optax.apply_if_finite(case.make(case.rate), 3))
    more = optax.chain(optax.clip_by_global_norm(1e6), optax.add_decayed_weights(0.0))
    around = optax.named_chain(("mu2", tx), ("scale", optax.scale(1.0)), ("rest", more))
    wrapped, _ = run(around, start())
    # The compiler may fuse differently: float32 rounding of values of order one.
    assert_close(alone(case), wrapped, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["storm", "projected sgd"])
def test_schedule_free_converges_around_what_does_not_average(name):
    tx = optax.contrib.schedule_free(CASES[name].make(0.05), learning_rate=0.05)
    final, state = run(tx, start(), jnp.zeros(4000))
    averaged = optax.contrib.schedule_free_eval_params(state, final)
    assert_close(averaged, jax.tree.map(jnp.zeros_like, averaged), rtol=0, atol=3e-2)


@every_mechanism_with_a_rate
def test_contract_weight_decay_after_it_shrinks_the_params(case):
    """With a flat loss, x ← x - λx alone remains: exact geometric decay."""
    flat = lambda params, batch: jax.tree.map(jnp.zeros_like, params)
    tx = optax.chain(case.make(case.rate), optax.add_decayed_weights(-0.1))

    @jax.jit
    def first_updates(params, batch):
        grads = flat(params, batch)
        return tx.update(grads, tx.init(params), params, grad_fn=flat, batch=batch)[0]

    params = start()
    updates = first_updates(params, jnp.zeros(()))
    assert_close(updates, jax.tree.map(lambda p: -0.1 * p, params), rtol=1e-6, atol=1e-6)
