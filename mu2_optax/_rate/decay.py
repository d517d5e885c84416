"""Steps with a decay of the weights that is safe to set."""

import jax
import jax.numpy as jnp

from mu2_optax._internal.masks import Mask, marks_of
from mu2_optax._internal.trees import held
from mu2_optax._internal.types import Params, Tree, Updates

_NOISY = 0.05  # how much directions may turn back until the decay is half of what it was


def fading(decay: jax.Array, back: jax.Array | float) -> jax.Array:
    """λ, less of it where directions turn back: curvature limits such a run, and not noise."""
    return decay / (1 + jnp.square(back / _NOISY))


def moves_of(
    rate: jax.Array, u: Tree, g: Updates, w: Params, decay: jax.Array | None, mask: Mask | None
) -> Tree:
    r"""The steps of w.

    .. math:: -\eta\,\frac{u + \lambda w}{1 + \eta\lambda}

    Coordinates without a gradient do not decay, nor do leaves that are not in the mask: their steps
    are :math:`-\eta u`.
    """
    if decay is None:
        (back,) = held(-rate)
        return jax.tree.map(lambda u: back.astype(u.dtype) * u, u)
    rate, share, decay = held(rate, rate / (1 + rate * decay), decay)
    leaves, structure = jax.tree.flatten(u)
    marks = [True] * len(leaves) if mask is None else marks_of("weight_decay_mask", mask, w)

    def move(u: jax.Array, g: jax.Array, w: jax.Array, decays: bool) -> jax.Array:
        plain = -rate.astype(u.dtype) * u
        if not decays:
            return plain
        return jnp.where(g == 0, plain, -share.astype(u.dtype) * (u + decay.astype(u.dtype) * w))

    each = zip(leaves, jax.tree.leaves(g), jax.tree.leaves(w), marks, strict=True)
    return jax.tree.unflatten(structure, [move(*leaf) for leaf in each])
