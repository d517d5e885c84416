"""`checked` finds what changes one of the two gradients of a step or moves its params."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import checkify
from jax.sharding import AxisType, PartitionSpec
from problems import batch_grad, grad_fn, grad_in_parts, jitted_step, join, samples, split

import mu2_optax as m
import mu2_optax.nnx

PARAMS = split(jnp.array([0.3, -0.2, 0.1, 0.4, -0.3]))
ZS = jnp.array(samples(40), jnp.float32)
WRONG = r"`grads` must be `grad_fn\(params, batch\)`, got gradients that differ from it by"


def steps(tx, gradient=grad_fn, again=grad_fn, change=lambda params: params, params=PARAMS, zs=ZS):
    """Some steps under jit, in each of which ``gradient`` is given and ``again`` is passed on."""

    @jax.jit
    def step(params, state, z):
        grads = gradient(params, z)
        updates, state = tx.update(grads, state, params, grad_fn=again, batch=z)
        return change(optax.apply_updates(params, updates)), state

    state = tx.init(params)
    for z in zs:
        params, state = step(params, state, z)
    jax.effects_barrier()
    return params, state


def reports(wrap=lambda tx: tx, inner=None, **how):
    """What is reported in a run of an optimizer, wrapped."""
    found = []
    steps(wrap(m.checked(m.mu2_sgd(0.3) if inner is None else inner, report=found.append)), **how)
    return found


OPTIMIZERS = {
    "mu2_sgd": m.mu2_sgd(0.3, m.linear_momentum()),
    "lean": m.mu2_sgd(0.3, m.linear_momentum(), lean=True),
    "measured, lean": m.mu2_sgd(0.3, m.linear_momentum(beta=m.measured_beta()), lean=True),
    "mu2_extra_sgd": m.mu2_extra_sgd(0.05),
    "storm": m.storm(0.1, 0.1),
    "mu2_adam": m.mu2_adam(1e-2),
    "one gradient": m.anytime_sgd(0.1, m.fixed_momentum()),
    "of Optax": optax.adam(1e-2),
}


NARROW = [(name, dtype) for name in ("mu2_sgd", "lean") for dtype in ("bfloat16", "float16")]


@pytest.mark.parametrize(("name", "dtype"), [(name, "float32") for name in OPTIMIZERS] + NARROW)
def test_checked_passes_the_right_loop_and_changes_nothing(name, dtype):
    params = jax.tree.map(lambda p: p.astype(dtype), PARAMS)
    zs = ZS.astype(dtype)
    found = []
    tx = m.checked(OPTIMIZERS[name], report=found.append)
    checked, _ = steps(tx, params=params, zs=zs)
    plain, _ = steps(optax.with_extra_args_support(OPTIMIZERS[name]), params=params, zs=zs)
    assert not found
    np.testing.assert_allclose(
        join(checked).astype(float), join(plain).astype(float), atol=4 * jnp.finfo(dtype).eps
    )


BEFORE = {
    "clipping": optax.clip_by_global_norm(1e-2),
    "weight decay": optax.add_decayed_weights(1e-3),
    "scaling": optax.scale(0.5),
    "a momentum": optax.trace(0.9),
}


@pytest.mark.parametrize("name", BEFORE)
def test_checked_finds_what_changes_the_gradient_before_it(name):
    found = reports(lambda tx: optax.chain(BEFORE[name], tx))
    assert len(found) >= len(ZS) - 1  # a momentum begins with the gradient itself
    assert "must be inside `grad_fn`" in found[0]


def test_checked_finds_a_momentum_before_mu2_auto():
    """Which would make its rate run away, and which it cannot see itself."""
    assert not reports(inner=m.mu2_auto())
    found = reports(lambda tx: optax.chain(optax.ema(0.9), tx), inner=m.mu2_auto())
    assert len(found) >= len(ZS) - 1


def test_checked_raises_at_once_and_through_checkify():
    tx = optax.chain(optax.scale(0.5), m.checked(m.mu2_sgd(0.3)))
    state = tx.init(PARAMS)

    def step(params, state, z):
        return tx.update(grad_fn(params, z), state, params, grad_fn=grad_fn, batch=z)

    with pytest.raises(checkify.JaxRuntimeError, match=WRONG + " 0.5 of its norm"):
        step(PARAMS, state, ZS[0])
    error, _ = jax.jit(checkify.checkify(step))(PARAMS, state, ZS[0])
    with pytest.raises(checkify.JaxRuntimeError, match=WRONG + " 0.5 of its norm"):
        error.throw()


def test_checked_finds_the_last_microbatch_of_optax():
    assert reports(lambda tx: optax.MultiSteps(tx, 2))
    assert not reports(lambda tx: m.accumulate_gradients(OPTIMIZERS["mu2_sgd"], 2))


def test_checked_finds_dropout_that_is_not_in_the_batch():
    calls = iter(range(100))

    def random(params, z):
        kept = jax.random.bernoulli(jax.random.key(next(calls)), shape=(5,)).astype(jnp.float32)
        return jax.tree.map(jnp.multiply, grad_fn(params, z), split(kept))

    assert reports(gradient=random, again=random, zs=ZS[:1])


def test_checked_takes_two_nans_for_equal():
    broken = lambda params, z: jax.tree.map(lambda g: g * jnp.nan, grad_fn(params, z))
    assert not reports(gradient=broken, again=broken, zs=ZS[:2])
    assert reports(gradient=broken, zs=ZS[:1])


BEHIND = ["mu2_sgd", "lean", "measured, lean", "mu2_extra_sgd", "mu2_adam", "one gradient"]
OPTIMIZERS_THAT_FOLLOW = {
    "mu2_auto": m.mu2_auto(),
    "storm": OPTIMIZERS["storm"],
    "of Optax": OPTIMIZERS["of Optax"],
}
decay = functools.partial(jax.tree.map, lambda p: p * (1 - 1e-3))


@pytest.mark.parametrize("name", BEHIND)
def test_checked_finds_params_that_something_else_has_moved(name):
    found = reports(inner=OPTIMIZERS[name], change=decay)
    assert len(found) == len(ZS) - 1
    assert "`params` must be those after the last update" in found[0]


@pytest.mark.parametrize("name", BEHIND)
def test_checked_finds_updates_that_are_scaled_after_it(name):
    assert reports(lambda tx: optax.chain(tx, optax.scale(0.5)), OPTIMIZERS[name])


@pytest.mark.parametrize("name", OPTIMIZERS_THAT_FOLLOW)
def test_checked_leaves_alone_what_follows_moved_params(name):
    inner = OPTIMIZERS_THAT_FOLLOW[name]
    assert not reports(inner=inner, change=decay)
    assert not reports(lambda tx: optax.chain(tx, optax.scale(0.5)), inner)


def test_checked_finds_what_is_scaled_after_several_microbatches():
    accumulated = m.accumulate_gradients(OPTIMIZERS["mu2_sgd"], 2)
    assert not reports(inner=accumulated)
    found = reports(lambda tx: optax.chain(tx, optax.scale(0.5)), accumulated)
    assert len(found) == (len(ZS) - 1) // 2
    several = optax.MultiSteps(OPTIMIZERS["one gradient"], 2).gradient_transformation()
    assert not reports(inner=several)
    assert len(reports(lambda tx: optax.chain(tx, optax.scale(0.5)), several)) == len(found)


@pytest.mark.parametrize("keeps_the_state", [False, True])
def test_checked_finds_a_step_whose_update_is_dropped(keeps_the_state):
    """Unless its state is dropped as well."""
    found = []
    tx = m.checked(OPTIMIZERS["mu2_sgd"], report=found.append)
    params, state = PARAMS, tx.init(PARAMS)
    step = jitted_step(tx)
    for i, z in enumerate(ZS[:10]):
        moved, new = step(params, state, z)
        if i != 5:
            params, state = moved, new
        elif not keeps_the_state:
            state = new
    jax.effects_barrier()
    assert len(found) == (0 if keeps_the_state else 1)


@pytest.mark.parametrize("name", BEHIND)
def test_checked_takes_params_that_are_loaded_before_the_first_step(name):
    found = []
    tx = m.checked(OPTIMIZERS[name], report=found.append)
    params, state = jax.tree.map(lambda p: 3 * p + 1, PARAMS), tx.init(PARAMS)
    step = jitted_step(tx)
    for z in ZS[:3]:
        params, state = step(params, state, z)
    jax.effects_barrier()
    assert not found


@pytest.mark.parametrize(("scale", "reports"), [(1.0, 0), (0.5, 1)])
def test_checked_checks_a_part_too(scale, reports):
    found = []
    tx = m.checked(m.mu2_sgd(0.1), report=found.append)
    grads, again = grad_in_parts(batch_grad, 1 / 2)(PARAMS, ZS[:8])
    grads = jax.tree.map(lambda g: scale * g, grads)
    tx.update(grads, tx.init(PARAMS), PARAMS, **again)
    jax.effects_barrier()
    assert len(found) == reports


def test_checked_refuses_bad_arguments():
    with pytest.raises(TypeError, match="`inner` must be an Optax optimizer"):
        m.checked(0.1)
    with pytest.raises(ValueError, match="`tolerance` must be finite and greater than 0, got 0"):
        m.checked(m.mu2_sgd(0.1), tolerance=0)
    with pytest.raises(TypeError, match="`report` must be a function such as print"):
        m.checked(m.mu2_sgd(0.1), report="print")
    tx = m.checked(m.mu2_sgd(0.1))
    with pytest.raises(ValueError, match="`checked` evaluates the gradient again"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS)


# The trap that it is made for: a mean over devices after `grad_fn`


def on_devices(tx, gradient, again, how, axis="batch"):
    """The params of every device after 60 steps on batches of 16, and what each is after."""
    zs = jnp.array(samples(60 * 16), jnp.float32).reshape(60, 16, 6)
    mean = functools.partial(jax.lax.pmean, axis_name=axis)

    def train(params, zs):
        def step(carry, z):
            params, state = carry
            grads = gradient(params, z)
            updates, state = tx.update(grads, state, params, grad_fn=again, batch=z)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), zs)
        spread = jax.tree.map(lambda p: jnp.max(jnp.abs(p - mean(p))), params)
        return params, jax.tree.map(functools.partial(jax.lax.pmax, axis_name=axis), spread)

    count = jax.device_count()
    if how == "pmap":
        parts = jnp.moveaxis(zs.reshape(60, count, 16 // count, 6), 1, 0)
        params, spread = jax.pmap(train, axis_name=axis, in_axes=(None, 0))(PARAMS, parts)
        return jax.tree.map(lambda p: p[0], (params, spread))
    mesh = jax.make_mesh((count,), (axis,), axis_types=(AxisType.Auto,))
    all_of, part = PartitionSpec(), PartitionSpec(None, axis)
    train = jax.shard_map(
        train, mesh=mesh, in_specs=(all_of, part), out_specs=(all_of, all_of), check_vma=False
    )
    return jax.jit(train)(PARAMS, zs)


@pytest.mark.parametrize("how", ["pmap", "shard_map"])
def test_checked_finds_a_mean_over_devices_after_grad_fn(how):
    local = batch_grad
    reduced = lambda params, z: jax.lax.pmean(local(params, z), "batch")
    tx = m.mu2_sgd(0.3)
    _, spread = on_devices(tx, reduced, local, how)
    assert max(map(float, jax.tree.leaves(spread))) > 1e-3  # the trap: they have drifted apart
    found = []
    on_devices(m.checked(tx, report=found.append), reduced, local, how)
    jax.effects_barrier()
    assert len(found) == 60 * jax.device_count()

    params, spread = on_devices(tx, reduced, reduced, how)
    assert max(map(float, jax.tree.leaves(spread))) < 1e-6
    zs = jnp.array(samples(60 * 16), jnp.float32).reshape(60, 16, 6)
    whole, _ = steps(tx, batch_grad, batch_grad, zs=zs)
    np.testing.assert_allclose(join(params), join(whole), atol=1e-5)


@pytest.mark.parametrize("axis_name", ["batch", ("batch",)])
def test_value_and_grad_takes_the_mean_over_devices(axis_name):
    """With the core's own `value_and_grad`; the axis may be a tuple."""
    loss = lambda params, z: 0.5 * jnp.mean((z @ jnp.ones(6) - params["rest"][0]) ** 2)
    evaluate = m.value_and_grad(loss, axis_name=axis_name)
    zs = jnp.array(samples(16), jnp.float32).reshape(jax.device_count(), -1, 6)

    def gradients(params, z):
        _, grads, again = evaluate(params, z)
        return grads, again["grad_fn"](params, again["batch"])

    grads, again = jax.pmap(gradients, axis_name="batch", in_axes=(None, 0))(PARAMS, zs)
    exact = jax.grad(loss)(PARAMS, zs.reshape(-1, 6))
    for found in (grads, again):
        for device in range(jax.device_count()):
            one = jax.tree.map(lambda g, device=device: g[device], found)
            np.testing.assert_allclose(join(one), join(exact), atol=1e-5)


def test_update_refuses_a_mean_over_devices_in_shard_map():
    """Where types tell along which axes an array varies, no debugging is needed."""
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    all_of, part = PartitionSpec(), PartitionSpec("batch")
    local = lambda params, z: batch_grad(jax.lax.pcast(params, "batch", to="varying"), z)
    for tx in (m.mu2_sgd(0.1), m.mu2_extra_sgd(0.1), m.storm(0.1, 0.5)):

        def step(params, z, tx=tx):
            grads = jax.lax.pmean(local(params, z), "batch")
            updates, _ = tx.update(grads, tx.init(params), params, grad_fn=local, batch=z)
            return updates

        mapped = jax.shard_map(step, mesh=mesh, in_specs=(all_of, part), out_specs=all_of)
        with pytest.raises(ValueError, match=r"vary along the axis 'batch': a mean over devices"):
            jax.jit(mapped)(PARAMS, ZS)
