"""Small problems and runs that the tests share."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax


def x64():
    """A context in which JAX uses double precision."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


def full_precision(dtype):
    """Double precision for float64, nothing special for the rest."""
    return x64() if jnp.dtype(dtype) == jnp.float64 else contextlib.nullcontext()


def samples(count, dim=5, seed=0):
    """Rows (a, b) of a noisy, smooth regression problem, as float64 NumPy arrays."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, dim)) / np.sqrt(dim)
    b = np.tanh(a @ rng.normal(size=dim)) + 0.3 * rng.normal(size=count)
    return np.concatenate([a, b[:, None]], axis=1)


def numpy_grad(x, z):
    """The gradient of the loss ½ (tanh(a·x) - b)² + ½ (a·x - b)² on one sample z = (a, b)."""
    a, b = z[:-1], z[-1]
    u = a @ x
    return a * ((np.tanh(u) - b) * (1 - np.tanh(u) ** 2) + (u - b))


def split(vector):
    """A vector of five as a mixed tree."""
    return {"matrix": vector[:4].reshape(2, 2), "rest": [vector[4]]}


def join(tree):
    """The inverse of ``split``; leading axes are kept."""
    matrix = tree["matrix"]
    return np.concatenate(
        [np.asarray(matrix).reshape(*matrix.shape[:-2], 4), np.asarray(tree["rest"][0])[..., None]],
        axis=-1,
    )


def loss(params, z):
    a, b = z[:-1], z[-1]
    u = a @ jnp.concatenate([params["matrix"].ravel(), params["rest"][0][None]])
    return 0.5 * (jnp.tanh(u) - b) ** 2 + 0.5 * (u - b) ** 2


grad_fn = jax.grad(loss)


def batch_grad(params, zs):
    """The mean gradient over a batch."""
    return jax.tree.map(lambda g: g.mean(0), jax.vmap(grad_fn, in_axes=(None, 0))(params, zs))


def jitted_step(tx, grad_fn=grad_fn):
    """One step of the plain loop, compiled once: for tests that look at every step."""

    @jax.jit
    def step(params, state, batch):
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    return step


def grad_in_parts(grad_fn, part):
    """``value_and_grad(part=part)`` of a loss whose gradient is ``grad_fn``, without the value."""

    @jax.custom_vjp
    def loss(params, batch):
        return jnp.zeros(())

    loss.defvjp(lambda *args: (loss(*args), grad_fn(*args)), lambda grads, _: (grads, None))
    few = (lambda batch: (part(batch),)) if callable(part) else part
    evaluate = mu2_optax.value_and_grad(loss, part=few)
    return lambda params, batch: evaluate(params, batch)[1:]


def over_microbatches(grad_fn):
    """The mean of ``grad_fn`` over the leading axis of a batch."""

    def mean(params, batches):
        each = jax.lax.map(lambda batch: grad_fn(params, batch), batches)
        return jax.tree.map(lambda g: g.mean(0), each)

    return mean


def run(tx, params, batches, grad_fn=grad_fn, part=None):
    """Runs ``tx`` under jit and ``lax.scan``; returns the params after each step, and the state."""
    gradient = lambda params, batch: (
        grad_fn(params, batch),
        {"grad_fn": grad_fn, "batch": batch},
    )
    if part is not None:
        gradient = grad_in_parts(grad_fn, part)

    def step(carry, batch):
        params, state = carry
        grads, again = gradient(params, batch)
        updates, state = tx.update(grads, state, params, **again)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    @jax.jit
    def whole(params, batches):
        return jax.lax.scan(step, (params, tx.init(params)), batches)

    (_, state), points = whole(params, batches)
    return points, state


def compiled(tx):
    """``tx`` with ``init`` and ``update`` compiled, each as a whole: for tests of a few calls."""
    update = jax.jit(optax.with_extra_args_support(tx).update, static_argnames="grad_fn")
    return optax.GradientTransformationExtraArgs(jax.jit(tx.init), update)
