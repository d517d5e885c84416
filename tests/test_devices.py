"""The same run on one device, on eight, and on two processes."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import problems
import pytest
from cnn import LinenCNN, assert_close, batches, cross_entropy, linen_variables, nnx_model
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from processes import TESTS, free_port, outputs, run
from train_as_one_of_two import (
    EXAMPLES,
    OPTIMIZERS,
    all_devices,
    distributed,
    estimates_of_the_batch_mean,
)

import mu2_optax
import mu2_optax.linen
import mu2_optax.nnx

STEPS = 30


def put(tree, spec):
    return jax.device_put(tree, NamedSharding(all_devices(), spec))


def bytes_on_each_device(tree):
    """For each device, the bytes of ``tree`` that it holds."""
    total = dict.fromkeys(jax.devices(), 0)
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            total[shard.device] += shard.data.nbytes
    return set(total.values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_devices_eight_fully_sharded_equal_one(name):
    one, _, _ = distributed.train(STEPS, OPTIMIZERS[name], jax.devices()[:1])
    eight, _, _ = distributed.train(STEPS, OPTIMIZERS[name])
    assert eight["inner"].sharding.num_devices == 8
    assert_close(eight, one, 1e-5)


def test_devices_jitted_init_shards_zeros_where_told_to():
    tx = mu2_optax.mu2_sgd(0.1)
    params = put(jnp.ones((8, 2)), PartitionSpec("all"))
    state = jax.jit(tx.init)(params)
    assert state.w.sharding.is_equivalent_to(params.sharding, 2)
    assert state.d.sharding.is_fully_replicated
    shardings = jax.tree.map(
        lambda leaf: (
            params.sharding if leaf.ndim else NamedSharding(all_devices(), PartitionSpec())
        ),
        jax.eval_shape(tx.init, params),
    )
    state = jax.jit(tx.init, out_shardings=shardings)(params)
    assert state.d.sharding.is_equivalent_to(params.sharding, 2)


def test_devices_compiled_step_replicates_nothing():
    tx = OPTIMIZERS["mu2_sgd"]
    params, state, _ = distributed.train(1, tx)
    mesh = all_devices()
    batch = {n: distributed.shard(mesh, a, 0) for n, a in distributed.global_batch(0).items()}

    def step(params, state, batch):
        grad_fn = jax.grad(distributed.loss_fn)
        grads = grad_fn(params, batch)
        return tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)

    memory = jax.jit(step).lower(params, state, batch).compile().memory_analysis()
    (each,) = bytes_on_each_device((params, [s for s in jax.tree.leaves(state) if s.ndim], batch))
    scalars = sum(s.nbytes for s in jax.tree.leaves(state) if not s.ndim)
    assert memory.argument_size_in_bytes == each + scalars


def expected_estimates(steps=5):
    means = [distributed.global_batch(number)["y"].mean() for number in range(steps)]
    estimates = [means[0]]
    for mean in means[1:]:
        estimates.append(0.25 * mean + 0.75 * estimates[-1])
    return np.array(estimates)


def test_devices_both_evaluations_see_one_global_batch():
    np.testing.assert_allclose(estimates_of_the_batch_mean(), expected_estimates(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_devices_fully_sharded_nnx_equals_one():
    def make(rngs):
        return nnx.Sequential(
            nnx.Linear(8, 16, rngs=rngs), nnx.Dropout(0.5, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)
        )

    one, eight = make(nnx.Rngs(0)), make(nnx.Rngs(0))
    nnx.update(eight, put(nnx.state(eight, nnx.Param), PartitionSpec("all")))
    nnx.update(eight, put(nnx.state(eight, nnx.RngState), PartitionSpec()))
    tx = mu2_optax.mu2_sgd(0.2)
    of_one, of_eight = (nnx.Optimizer(model, tx, wrt=nnx.Param) for model in (one, eight))
    of_eight.step.set_value(put(of_eight.step.get_value(), PartitionSpec()))

    @nnx.jit
    def step(model, optimizer, x):
        loss_fn = lambda model, x: jnp.mean((model(x) - x) ** 2)
        loss, grads, again = mu2_optax.nnx.value_and_grad(loss_fn)(model, x)
        optimizer.update(model, grads, **again)
        return loss

    for x in jax.random.normal(jax.random.key(1), (STEPS, 16, 8)):
        step(one, of_one, x)
        step(eight, of_eight, put(x, PartitionSpec("all"))).block_until_ready()
    ours, theirs = (nnx.as_pure(nnx.state(model, nnx.Param)) for model in (eight, one))
    assert_close(ours, theirs, 1e-5)
    state = [leaf for leaf in jax.tree.leaves(nnx.as_pure(of_eight.opt_state)) if leaf.ndim]
    assert bytes_on_each_device(state) == {sum(leaf.nbytes for leaf in state) // 8}


def varying(params):
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(params, "all", to="varying")
    return jax.lax.pvary(params, "all")


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("microbatches", [None, 2])
def test_devices_shard_map_with_the_mean_in_grad_fn_equals_one(check_vma, microbatches):
    tx = OPTIMIZERS["mu2_sgd"]
    one, _, _ = distributed.train(3, tx, jax.devices()[:1])
    of_one_device = jax.grad(distributed.loss_fn)
    spec = PartitionSpec("all")
    if microbatches:
        evaluate = mu2_optax.value_and_grad(distributed.loss_fn, accumulate=True)
        of_one_device = lambda params, batch: evaluate(params, batch)[1]
        spec = PartitionSpec(None, "all")

    def grad_fn(params, batch):
        return jax.lax.pmean(of_one_device(varying(params), batch), "all")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=all_devices(),
        in_specs=(PartitionSpec(), PartitionSpec(), spec),
        out_specs=PartitionSpec(),
        check_vma=check_vma,
    )
    def step(params, state, batch):
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.asarray, distributed.initial_params())
    state = tx.init(params)
    for number in range(3):
        batch = jax.tree.map(jnp.asarray, distributed.global_batch(number))
        if microbatches:
            batch = jax.tree.map(lambda a: a.reshape(microbatches, -1, *a.shape[1:]), batch)
        params, state = jax.block_until_ready(step(params, state, batch))
    assert_close(params, one, 1e-5)


PARALLEL = {
    "shard_map": lambda step: jax.jit(over_eight(step)),
    "shard_map, unchecked": lambda step: jax.jit(over_eight(step, check_vma=False)),
    "pmap": lambda step: pmapped(step),
}


def over_eight(step, **options):
    return jax.shard_map(
        step,
        mesh=all_devices(),
        in_specs=(PartitionSpec(), PartitionSpec("all")),
        out_specs=PartitionSpec(),
        **options,
    )


def pmapped(step):
    """A pmap of eight, called like the others: with one state and one global batch."""
    each = jax.pmap(step, axis_name="all", in_axes=(None, 0), out_axes=None)
    return lambda state, batch: each(
        state, jax.tree.map(lambda a: a.reshape(8, -1, *a.shape[1:]), batch)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "accumulate"),
    [("shard_map", True), ("shard_map, unchecked", False), ("pmap", True)],
)
def test_devices_flax_imagenet_with_its_pmean_equals_one(how, accumulate):
    """The form of flax/examples/imagenet/train.py, BatchNorm left out: it is of each device."""
    tx = mu2_optax.mu2_sgd(0.5, mu2_optax.fixed_momentum(beta=0.1))
    variables = linen_variables(batch_norm=False)
    one = eight = mu2_optax.linen.TrainState.create(
        apply_fn=LinenCNN(batch_norm=False).apply, tx=tx, **variables
    )

    def train_step(state, batch, axis_name=None, accumulate=False):
        def loss_fn(params, batch):
            logits = state.apply_fn({"params": params}, batch["image"])
            return cross_entropy(logits, batch), logits

        evaluate = mu2_optax.value_and_grad(
            loss_fn, has_aux=True, axis_name=axis_name, accumulate=accumulate
        )
        if accumulate:
            batch = jax.tree.map(lambda a: a.reshape(2, -1, *a.shape[1:]), batch)
        (loss, _), grads, again = evaluate(state.params, batch)
        if axis_name:
            grads = jax.lax.pmean(grads, axis_name)
        return state.apply_gradients(grads=grads, **again), loss

    over_one = jax.jit(train_step)
    over_many = PARALLEL[how](functools.partial(train_step, axis_name="all", accumulate=accumulate))
    for batch in batches(5):
        one, expected = over_one(one, batch)
        eight, loss = jax.block_until_ready(over_many(eight, batch))
        np.testing.assert_allclose(loss, expected, atol=1e-5)
    assert_close(eight.params, one.params, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
def test_devices_nnx_in_shard_map_equals_one(check_vma):
    tx = mu2_optax.mu2_sgd(0.5, mu2_optax.fixed_momentum(beta=0.1))
    one, eight = nnx_model(batch_norm=False), nnx_model(batch_norm=False)
    of_one, of_eight = (nnx.Optimizer(model, tx, wrt=nnx.Param) for model in (one, eight))

    def train_step(model, optimizer, batch, axis_name=None):
        loss_fn = lambda model, batch: cross_entropy(model(batch["image"]), batch)
        evaluate = mu2_optax.nnx.value_and_grad(loss_fn, axis_name=axis_name)
        loss, grads, again = evaluate(model, batch)
        optimizer.update(model, grads, **again)
        return loss

    graphdef, values = nnx.split((eight, of_eight))

    @jax.jit
    def over_eight_devices(values, batch):
        def step(values, batch):
            model, optimizer = nnx.merge(graphdef, values)
            loss = train_step(model, optimizer, batch, "all")
            return nnx.state((model, optimizer)), loss

        return over_eight(step, check_vma=check_vma)(values, batch)

    for batch in batches(5):
        expected = nnx.jit(train_step)(one, of_one, batch)
        values, loss = jax.block_until_ready(over_eight_devices(values, batch))
        np.testing.assert_allclose(loss, expected, atol=1e-5)
    eight, _ = nnx.merge(graphdef, values)
    ours, theirs = (nnx.as_pure(nnx.state(model, nnx.Param)) for model in (eight, one))
    assert_close(ours, theirs, 1e-5)


@pytest.mark.parametrize("options", [{}, {"spectral": True}, {"projection": jax.nn.relu}])
def test_devices_runs_of_their_own_in_shard_map_scan_as_one_alone(options):
    """Each device has other params, so that all that the state knows of them varies too."""
    mesh = jax.make_mesh((8,), ("run",), axis_types=(AxisType.Auto,))
    tx = mu2_optax.mu2_auto(**options)

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(params - 2, state, params)
        return (optax.apply_updates(params, updates), state), None

    def runs(starts):
        final = lambda p: jax.lax.scan(step, (p, tx.init(p)), length=5)[0][0]
        return jnp.stack([final(p) for p in starts])

    starts = jnp.arange(1.0, 97.0).reshape(8, 4, 3)
    spec = PartitionSpec("run")
    found = jax.jit(jax.shard_map(runs, mesh=mesh, in_specs=spec, out_specs=spec))(starts)
    np.testing.assert_allclose(found[5], jax.jit(runs)(starts[5:6])[0], rtol=1e-4)


def test_value_and_grad_accumulates_on_an_explicit_mesh_in_its_sharding():
    mesh = jax.make_mesh((8,), ("all",), axis_types=(AxisType.Explicit,))
    evaluate = mu2_optax.value_and_grad(lambda x, z: jnp.sum((x - z) ** 2), accumulate=True)
    grad_fn = lambda x, z: evaluate(x, z)[1]
    x, z = jnp.arange(8.0), jnp.ones((2, 8))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec("all")))
        found = jax.jit(grad_fn)(sharded, z)
        assert jax.typeof(found) == jax.typeof(sharded)
    np.testing.assert_allclose(found, grad_fn(x, z))


@pytest.mark.parametrize(
    "tx",
    [
        mu2_optax.mu2_auto(),
        mu2_optax.mu2_extra_sgd(0.05, projection=mu2_optax.onto_l2_ball(2.0)),
        mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum(beta=mu2_optax.measured_beta())),
        mu2_optax.accumulate_gradients(
            mu2_optax.reject_nonfinite(mu2_optax.mu2_adam(0.1, weight_decay=1e-4)), 2
        ),
    ],
    ids=["mu2_auto", "mu2_extra_sgd", "measured_beta", "wrappers"],
)
def test_devices_explicit_mesh_moves_a_matrix_as_one_device(tx):
    grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2 + 0.1 * x**4))
    noise = jax.random.normal(jax.random.key(0), (8, 4, 8))
    train = jax.jit(lambda x, batches: problems.run(tx, x, batches, grad_fn)[0][-1])
    x = jnp.ones((4, 8))
    mesh = jax.make_mesh((8,), ("all",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, "all")))
        found = train(sharded, jax.device_put(noise, NamedSharding(mesh, PartitionSpec())))
        assert jax.typeof(found) == jax.typeof(sharded)
    np.testing.assert_allclose(found, train(x, noise), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_devices_two_processes_equal_one(tmp_path):
    port = free_port()
    results = [tmp_path / f"{process}.npz" for process in range(2)]
    outputs(
        *(
            run(TESTS / "train_as_one_of_two.py", i, port, STEPS, path)
            for i, path in enumerate(results)
        )
    )
    alone = {
        name: distributed.train(STEPS, tx, jax.devices()[:1]) for name, tx in OPTIMIZERS.items()
    }
    for path in results:
        arrays = np.load(path)
        np.testing.assert_allclose(arrays["estimates"], expected_estimates(), atol=1e-6)
        for name, (params, _, loss) in alone.items():
            for key, value in {**params, "loss": loss}.items():
                np.testing.assert_allclose(arrays[f"{name} {key}"], value, atol=1e-5)


@pytest.mark.slow
def test_devices_example_prints_one_value_for_any_number():
    script, port = EXAMPLES / "distributed.py", free_port()
    together = ["--steps", 20, "--processes", 2, "--coordinator", f"127.0.0.1:{port}"]
    printed = [
        *outputs(run(script, "--steps", 20)),
        *outputs(run(script, "--steps", 20, devices=8)),
        *outputs(*(run(script, *together, "--process", process) for process in range(2))),
    ]
    last_lines = {output.splitlines()[-1] for output in printed}
    assert len(last_lines) == 1
    assert re.fullmatch(r"final loss: \d+\.\d{6}", last_lines.pop())
    assert [output.splitlines()[-3] for output in printed] == [
        "devices: 1, processes: 1",
        "devices: 8, processes: 1",
        "devices: 2, processes: 2",
        "devices: 2, processes: 2",
    ]
