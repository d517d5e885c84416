"""Optimizers as people use them: schedules, Muon for matrices, DoG's average, schedule-free."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import contrib

import mu2_optax

WARMUP, DECAY = 0.05, 0.2  # shares of the steps


def cosine(rate: Any, steps: int, warmup: float = WARMUP) -> Callable[[Any], Any]:
    """A linear warm-up and half a cosine down to zero."""
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, round(warmup * steps), steps)
    return lambda count: rate * shape(count + 1)


def stable_then_decay(rate: Any, steps: int) -> Callable[[Any], Any]:
    """A linear warm-up, a constant rate, and a linear decay to zero over the last fifth."""

    def schedule(count: Any) -> Any:
        up = (count + 1) / max(1, round(WARMUP * steps))
        down = (steps - count) / max(1, round(DECAY * steps))
        return rate * jnp.minimum(1.0, jnp.minimum(up, down))

    return schedule


def nadamw(rate: Any, steps: int) -> Any:
    """AlgoPerf's baseline for self-tuning: its momenta, decay and warm-up."""
    schedule = cosine(rate, steps, warmup=0.02)
    b1, b2, decay = 1 - 0.06733926164, 0.9955159689799007, 0.08121616522670176
    return optax.nadamw(schedule, b1=b1, b2=b2, weight_decay=decay)


def muon(rate: Any, steps: int) -> Any:
    """Muon for the matrices inside a network, with steps of the size of AdamW's for the rest."""

    def tx(params: Any) -> Any:
        return contrib.muon(
            cosine(rate, steps),
            consistent_rms=0.2,
            weight_decay=1e-4,
            adam_weight_decay=1e-4,
            muon_weight_dimension_numbers=matrices_inside(params),
        )

    return optax.GradientTransformation(
        lambda params: tx(params).init(params),
        lambda grads, state, params=None: tx(params).update(grads, state, params),
    )


def matrices_inside(params: Any) -> Any:
    """Marks the matrices for Muon: neither embeddings nor the last of several layers."""
    outside = {"characters", "positions", "words", "contexts", "users", "items", "out", "dense2"}

    def numbered(path: Any) -> tuple[str, int] | None:
        """The list that a leaf is in, and its place there."""
        for i, key in enumerate(path):
            if isinstance(key, jax.tree_util.SequenceKey):
                return jax.tree_util.keystr(path[:i]), key.idx
        return None

    places = [numbered(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    last = dict(sorted(place for place in places if place is not None))  # the largest comes last

    def mark(path: Any, leaf: Any) -> Any:
        place = numbered(path)
        names = {key.key for key in path if isinstance(key, jax.tree_util.DictKey)}
        if names & outside or (place is not None and last[place[0]] == place[1]):
            return None
        kinds = {2: contrib.MuonDimensionNumbers(), 4: contrib.MuonDimensionNumbers((0, 1, 2), 3)}
        return kinds.get(leaf.ndim)

    return jax.tree_util.tree_map_with_path(mark, params)


class AveragedState(NamedTuple):
    """The state of `averaged`: the steps so far, the average, and the inner state."""

    count: Any
    average: Any
    inner: Any


def averaged(inner: Any, power: float = 8.0) -> Any:
    """Keeps an average of the params that forgets polynomially, as DoG is meant to be evaluated."""

    def init(params: Any) -> AveragedState:
        zero = jnp.zeros((), jnp.int32)
        return AveragedState(zero, jax.tree.map(jnp.array, params), inner.init(params))

    def update(grads: Any, state: AveragedState, params: Any = None) -> Any:
        updates, inner_state = inner.update(grads, state.inner, params)
        share = (1 + power) / (state.count + 1 + power)
        average = jax.tree.map(
            lambda a, p, u: (1 - share) * a + share * (p + u), state.average, params, updates
        )
        return updates, AveragedState(state.count + 1, average, inner_state)

    return optax.GradientTransformation(init, update)


def schedule_free_sgd(rate: Any, steps: int | None, projection: Any) -> Any:
    """Schedule-free SGD at a constant rate, its iterate z in a set if there is one."""
    del steps
    return contrib.schedule_free(_on_own_iterate(optax.sgd(rate), projection), rate)


def schedule_free_adamw(rate: Any, steps: int | None, projection: Any) -> Any:
    """Schedule-free AdamW: a warm-up if the steps are known, z in a set if there is one."""
    if steps is not None:
        if projection is not None:
            raise ValueError("`projection` must be None for a run with a warm-up.")
        return contrib.schedule_free_adamw(rate, warmup_steps=round(WARMUP * steps))
    base = optax.chain(  # the base optimizer of contrib.schedule_free_adamw
        optax.scale_by_rms(0.999, 1e-8, eps_in_sqrt=False, bias_correction=True),
        optax.scale_by_learning_rate(rate),
    )
    return contrib.schedule_free(_on_own_iterate(base, projection), rate)


def _on_own_iterate(base: Any, projection: Callable[[Any], Any] | None) -> Any:
    """Projects the iterate that ``base`` moves: schedule-free's z, whose averages then stay inside.

    ``contrib.schedule_free`` shows its base optimizer the point of the gradient, not z, so z is
    kept here as well.
    """
    if projection is None:
        return base
    tx = mu2_optax.projected(base, projection)

    def init(params: Any) -> Any:
        return params, tx.init(params)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        del params
        z, inner = state
        move, inner = tx.update(updates, inner, z, **extra_args)
        return move, (optax.apply_updates(z, move), inner)

    return optax.GradientTransformationExtraArgs(init, update)
