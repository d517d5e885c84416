"""One small network three times: in linen, in NNX and by hand, all from the same parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

CLASSES = 4


class LinenCNN(linen.Module):
    dropout: float = 0.0
    batch_norm: bool = True

    @linen.compact
    def __call__(self, x, train=True):
        x = linen.Conv(6, (3, 3), name="conv")(x)
        if self.batch_norm:
            x = linen.BatchNorm(use_running_average=not train, momentum=0.9, name="norm")(x)
        x = linen.relu(x).mean((1, 2))
        x = linen.Dropout(self.dropout, deterministic=not train)(x)
        return linen.Dense(CLASSES, name="dense")(x)


class NnxCNN(nnx.Module):
    def __init__(self, rngs, dropout=0.0, batch_norm=True):
        self.conv = nnx.Conv(1, 6, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(6, momentum=0.9, rngs=rngs) if batch_norm else None
        self.dropout = nnx.Dropout(dropout)
        self.dense = nnx.Linear(6, CLASSES, rngs=rngs)

    def __call__(self, x, rngs=None):
        x = self.conv(x)
        if self.norm is not None:
            x = self.norm(x)
        x = nnx.relu(x).mean((1, 2))
        return self.dense(self.dropout(x, rngs=rngs))


def by_hand(params, x):
    """The network with BatchNorm and no dropout, and the batch statistics it has seen."""
    x = jax.lax.conv_general_dilated(
        x, params["conv"]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = x + params["conv"]["bias"]
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    x = (x - mean) / jnp.sqrt(var + 1e-5) * params["norm"]["scale"] + params["norm"]["bias"]
    x = jnp.maximum(x, 0).mean((1, 2))
    return x @ params["dense"]["kernel"] + params["dense"]["bias"], (mean, var)


def linen_variables(batch_norm=True):
    """New parameters and statistics, the same each time; a test may donate them."""
    return jax.tree.map(jnp.array, _variables(batch_norm))


@functools.cache
def _variables(batch_norm):
    model = LinenCNN(batch_norm=batch_norm)
    init = jax.jit(functools.partial(model.init, train=False))
    variables = init(jax.random.key(0), np.zeros((1, 6, 6, 1), np.float32))
    return jax.tree.map(np.asarray, variables)


def nnx_model(**options):
    """The NNX network with the parameters of the linen one."""
    model = _new_model(**options)()
    nnx.update(model, nnx.State(linen_variables(options.get("batch_norm", True))["params"]))
    return model


@functools.cache
def _new_model(**options):
    return nnx.jit(lambda: NnxCNN(nnx.Rngs(0), **options))


def batches(steps, size=16, seed=0):
    """Blobs of noise whose brightness tells the class."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        label = rng.integers(0, CLASSES, size)
        image = rng.normal(label[:, None, None, None] / 2, 1.0, (size, 6, 6, 1))
        yield {"image": jnp.asarray(image, jnp.float32), "label": jnp.asarray(label)}


def cross_entropy(logits, batch):
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


def split(batch, count):
    return jax.tree.map(lambda a: a.reshape(count, -1, *a.shape[1:]), batch)


def assert_close(ours, theirs, atol):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol),
        nnx.to_pure_dict(ours) if isinstance(ours, nnx.State) else ours,
        nnx.to_pure_dict(theirs) if isinstance(theirs, nnx.State) else theirs,
    )
