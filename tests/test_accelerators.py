"""The programs that compilers for TPUs and GPUs would be given, lowered without either."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export
from optimizers import BATCHES, every_mechanism, every_optimizer, start, step
from problems import full_precision

import mu2_optax

# Whatever leaves the device: transfers, and calls of code that is not in the program.
HOST = re.compile(r"stablehlo\.(?:infeed|outfeed|send|recv|custom_call)\b")


def exported(function, *arguments, platforms=("tpu", "cuda")):
    """The StableHLO of a function for other platforms than this one."""
    return export.export(jax.jit(function), platforms=platforms)(*arguments).mlir_module()


def step_for_accelerators(case):
    """The StableHLO of a step of an optimizer, for params of shapes (4,) and (2, 1)."""
    tx = case.make(case.rate)
    params = jax.eval_shape(start)
    state = jax.eval_shape(tx.init, params)
    return exported(functools.partial(step, tx), params, state, BATCHES[0])


@every_optimizer
def test_accelerators_each_step_is_lowered_for_tpu_and_gpu(case):
    text = step_for_accelerators(case)
    assert "stablehlo." in text
    assert not HOST.findall(text)
    assert "f64" not in text


@every_mechanism
def test_accelerators_float64_is_for_numbers_alone(case):
    """Weights, and what is known of each tensor; not what has the size of the params."""
    with full_precision("float64"):
        assert not re.findall(r"tensor<(?:4|2x1)xf64>", step_for_accelerators(case))


@pytest.mark.parametrize("shape", [(48, 1600, 6400), (32, 4096, 4096), (8, 4096, 14336)])
def test_accelerators_a_sample_of_stacked_layers_spans_few_rows(shape):
    """For bfloat16 a TPU v5e loads all rows between the first and the last, and refuses 2**15."""
    tx = mu2_optax.mu2_auto()
    params = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    text = exported(tx.update, params, jax.eval_shape(tx.init, params), params)
    slices = re.findall(r"slice %\S+ \[(.*?)\] : \(tensor<" + "x".join(map(str, shape)), text)
    assert slices
    for along in slices:
        *others, _ = [[int(n) for n in axis.split(":")] for axis in along.split(", ")]
        assert np.prod([end - start for start, end, *_ in others]) <= 2**14


def test_accelerators_a_call_of_the_host_would_be_seen():
    def calls(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(ValueError, match="platform"):  # the backend here is no TPU
        exported(calls, jnp.ones(3), platforms=["tpu"])
    assert HOST.findall(jax.jit(calls).lower(jnp.ones(3)).as_text())


# One step of μ²-SGD on least squares, with one parameter: a matrix of a shape of its own.
SHAPE, BATCH = (784, 10), 64
GRADIENTS = 2


def least_squares(x, batch):
    features, targets = batch
    return jnp.mean((features @ x - targets) ** 2)


grad_fn = jax.grad(least_squares)


def one_step(tx, x, state, batch):
    grads = grad_fn(x, batch)
    updates, state = tx.update(grads, state, x, grad_fn=grad_fn, batch=batch)
    return optax.apply_updates(x, updates), state


def arguments(tx):
    x = jnp.zeros(SHAPE)
    return x, tx.init(x), (jnp.ones((BATCH, SHAPE[0])), jnp.ones((BATCH, SHAPE[1])))


ELEMENTWISE = {
    f"stablehlo.{name}"
    for name in ("add", "subtract", "multiply", "divide", "select", "broadcast_in_dim")
}


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_mu2_sgd_is_two_gradients_and_one_pass_over_the_params(platform):
    """From the gradients on there is elementwise arithmetic alone, which needs one pass.

    It reads x, d, w and the gradients at x and at the last point, and writes the new x, d and w,
    and the new last point, which is the old x.
    """
    tx = mu2_optax.mu2_sgd(0.1)
    traced = jax.jit(functools.partial(one_step, tx)).trace(*arguments(tx))
    module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    main = next(f for f in module.body.operations if f.name.value == "main")
    *operations, returned = main.regions[0].blocks[0].operations
    of_params = lambda value: str(value.type) == "tensor<{}x{}xf32>".format(*SHAPE)
    large = [op for op in operations if any(map(of_params, op.results))]
    update = [op for op in large if op.operation.name in ELEMENTWISE]
    # The gradients are products with the batch, forward and backward, in this one program.
    names = [op.operation.name for op in operations]
    assert names.count("stablehlo.dot_general") == 2 * GRADIENTS
    gradients = [op.results[0] for op in large if op not in update]
    assert len(gradients) == GRADIENTS
    made = {op.results[0] for op in update}
    read = {value for op in update for value in op.operands if of_params(value)} - made
    x, last_point, d, w = filter(of_params, main.regions[0].blocks[0].arguments)
    assert read == {x, d, w, *gradients}
    assert last_point not in read
    new_x, new_last_point, new_d, new_w = filter(of_params, returned.operands)
    assert len({new_x, new_last_point, new_d, new_w} & made) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("state_first", "copies"), [(False, 0), (True, 1)])
def test_mu2_sgd_donated_copies_nothing_if_params_come_first(state_first, copies):
    """Otherwise the buffer of the params is the last point's, and one of them has to move."""

    def ordered(*arguments):
        params, state = one_step(tx, *arguments)
        return (state, params) if state_first else (params, state)

    tx = mu2_optax.mu2_sgd(0.1)
    text = jax.jit(ordered, donate_argnums=(0, 1)).lower(*arguments(tx)).compile().as_text()
    of_params = re.escape("f32[{},{}]".format(*SHAPE))
    assert len(re.findall(rf"= {of_params}\S* copy\w*\(", text[text.index("ENTRY") :])) == copies
