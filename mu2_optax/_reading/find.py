"""Finds what an optimizer's state holds, inside chains, wrappers and train states."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from mu2_optax._internal.types import OptState, Tree
from mu2_optax._optimizers.extra_sgd import Mu2ExtraState
from mu2_optax._paper.averaging import AnytimeState
from mu2_optax._rate.distance import DistanceRateState, rate_of

_MOVE_THE_PARAMS = (optax.contrib.MechanicState, optax.contrib.ScheduleFreeState)


def find_all(state: OptState, kinds: Any) -> list[Any]:
    """The parts of a state that are of one of these kinds, wherever they are.

    Args:
      state: The state of any chain or wrapper; a Flax train state or ``nnx.Optimizer``.
      kinds: A class of states, or a tuple of them.
    """
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, kinds))
    return [node for node in nodes if isinstance(node, kinds)]


def find(state: OptState, kinds: Any, what: str, remedy: str) -> Any:
    """The only part of a state that is of one of these kinds, as plain arrays.

    Args:
      state: As in :func:`find_all`.
      kinds: As in :func:`find_all`.
      what: What such a part holds, for the error.
      remedy: What to do if there is none, or more than one.
    """
    found = find_all(state, kinds)
    if len(found) != 1:
        raise ValueError(
            f"`state` must hold exactly one {what}, got {len(found)} in a "
            f"{type(state).__name__}; {remedy}"
        )
    return _plain(found[0])


def _plain(tree: Tree) -> Any:
    """A tree with plain arrays instead of Flax's variables; if it has any, Flax is loaded."""
    nnx = sys.modules.get("flax.nnx")
    return tree if nnx is None else nnx.as_pure(tree)


def eval_params(state: OptState, params: Tree = None, default: Tree = None) -> Tree:
    r"""The average of the iterates: what to evaluate, save and export.

    It is x in :func:`anytime`, which :func:`mu2_auto` keeps in its state. Where the params are the
    average already, as with :func:`mu2_sgd`, they are returned as they are. Training goes on from
    the params, not from the average.

    Args:
      state: The state of an optimizer that averages, by itself or inside chains, masks and
        wrappers; or a whole Flax ``TrainState`` or ``nnx.Optimizer``.
      params: The params that go with it. Without them, the average is in the dtypes of the state,
        has no leaves that the optimizer does not move, and before the first step is what ``init``
        was given.
      default: What to return if nothing in ``state`` averages, as with ``optax.adam``: pass
        ``params`` in code that works with any optimizer. Without it, such a state is an error.

    Returns:
      A tree like params, in their dtypes. Leaves that the optimizer does not move (masked, or in
      another group of a partition) are returned as they are.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> tx = optax.chain(optax.clip_by_global_norm(1.0), mu2_optax.mu2_auto())
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, target):
      ...     updates, state = tx.update(params - target, state, params)
      ...     return optax.apply_updates(params, updates), state
      >>> for target in jax.random.normal(jax.random.key(0), (300, 2)):
      ...     params, state = step(params, state, target)
      >>> average = mu2_optax.eval_params(state, params)
      >>> bool(jnp.linalg.norm(average) < 0.3)
      True
    """
    kinds = (AnytimeState, Mu2ExtraState)
    if default is not None and not find_all(state, kinds):
        return default
    held = find(
        state,
        kinds,
        "average of the params",
        "pass the state of `mu2_auto` or of another optimizer that averages. Where there are "
        "several, pass each part of the state with its own params; where there is none, evaluate "
        "at the params, or pass `default=params`.",
    )
    _check_the_params_are_its_own(state)
    if isinstance(held, Mu2ExtraState) or held.ahead is None:
        if params is None:
            raise ValueError(
                "`params` must be given, got None: the params of this optimizer are the average."
            )
        return params
    averages = jax.tree.map(_joined, held.x, is_leaf=_is_split)
    if params is None:
        return averages

    def average(x: Any, p: Any) -> Any:
        if _left_out(x):
            return p
        if not jax.tree_util.all_leaves([p]) or jnp.shape(p) != jnp.shape(x):
            raise ValueError(f"shape {jax.tree.map(jnp.shape, p)}, expected {jnp.shape(x)}.")
        first = (held.t == 0).reshape(held.t.shape + (1,) * (x.ndim - held.t.ndim))
        return jnp.where(first, p, x.astype(jnp.result_type(p)))

    try:
        averages = jax.tree.map(average, averages, _plain(params), is_leaf=_left_out)
    except ValueError as error:
        raise ValueError(
            f"`params` must be the tree that `state` was made for, got another: {error} Pass what "
            "is given to `tx.update`; inside a wrapper that reshapes it, such as "
            "`optax.flatten`, the average cannot be found."
        ) from error
    return jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(averages))


def _is_split(node: Any) -> bool:
    """Whether ``optax.contrib.split_real_and_imaginary`` has made it of a complex array."""
    return getattr(node, "_fields", None) == ("real", "imaginary")


def _joined(node: Any) -> Any:
    return node.real + 1j * node.imaginary if _is_split(node) else node


def _left_out(x: Any) -> bool:
    """Whether the optimizer does not move a leaf or a whole branch: masked, or frozen."""
    return x is None or isinstance(x, optax.MaskedNode)


def _check_the_params_are_its_own(state: OptState) -> None:
    """Requires that nothing around the optimizer moves the params by steps of another length."""
    for wrapper in find_all(state, _MOVE_THE_PARAMS):
        raise ValueError(
            "`state` must be that of an optimizer whose updates are the steps the params take, "
            f"got one inside a {type(wrapper).__name__}, which scales or averages them itself; "
            "evaluate as that wrapper says (after `optax.contrib.mechanize`, at the params)."
        )


def found_rate(state: OptState) -> jax.Array:
    r"""The learning rate that an optimizer has found: η of its last step, for logging.

    .. math:: \eta_t = \tfrac{\sqrt 7}{3}\,\rho_t^2 / \sqrt{G_t}

    Args:
      state: The state of :func:`mu2_auto` or of another optimizer with a :func:`distance_rate`, by
        itself or inside chains and wrappers.

    Returns:
      A scalar; 0 before the first step.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> tx = mu2_optax.mu2_auto()
      >>> params = jnp.ones(2)
      >>> _, state = tx.update(params, tx.init(params), params)
      >>> round(float(mu2_optax.found_rate(state)), 4)  # a tenth of the params' size, times √7/3
      0.0882
    """
    held = find(
        state,
        DistanceRateState,
        "learning rate that was found",
        "pass the state of `mu2_auto` or `distance_rate`.",
    )
    return rate_of(held.size, held.reach, held.energy)
