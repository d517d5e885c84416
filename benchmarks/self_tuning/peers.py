"""The optimizers: how each is made from a rate, its default, its grid, and where it is evaluated.

The only place that knows them. All are called with the loss (``value``), ``grad_fn`` and ``batch``,
which each may use or not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import contrib

import mu2_optax
from benchmarks.self_tuning.runner import at_params
from benchmarks.self_tuning.schedule_free_plus import schedule_free_plus

WARMUP, DECAY = 0.05, 0.2  # shares of the steps
AUTO, SPECTRAL = OURS = ("mu2_auto", "mu2_auto_spectral")  # with nothing to choose, so not tuned
REFERENCE = "adamw_cosine"  # whose calibrated run gives the targets
SMALL_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
LARGE_RATES = (3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Peer(NamedTuple):
    """An optimizer of the comparison.

    Attributes:
      title: Its name in words.
      make: From (rate, steps) to the transform.
      untouched: The rate that was published as its default, or is customary.
      rates: The grid that it is tuned over, which has the untouched one.
      evaluate: From (state, params) to the params to evaluate.
      gradients: Gradients in a step.
    """

    title: str
    make: Callable[[Any, int], Any]
    untouched: float
    rates: tuple[float, ...]
    evaluate: Callable[[Any, Any], Any] = at_params
    gradients: int = 1


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


def schedule_free(rate: Any, steps: int) -> Any:
    """Schedule-free AdamW with its warm-up."""
    return contrib.schedule_free_adamw(rate, warmup_steps=round(WARMUP * steps))


PEERS = {
    AUTO: Peer(
        "mu2_auto",
        lambda rate, steps: mu2_optax.mu2_auto(factor=rate),
        1.0,
        (0.01, 0.1, 1.0, 10.0, 100.0),
        mu2_optax.eval_params,
    ),
    SPECTRAL: Peer(
        "mu2_auto, spectral",
        lambda rate, steps: mu2_optax.mu2_auto(factor=rate, spectral=True),
        1.0,
        (1.0,),
        mu2_optax.eval_params,
    ),
    REFERENCE: Peer(
        "AdamW, cosine",
        lambda rate, steps: optax.adamw(cosine(rate, steps)),
        1e-3,
        SMALL_RATES,
    ),
    "schedule_free_adamw": Peer(
        "schedule-free AdamW",
        schedule_free,
        2.5e-3,
        (1e-3, 2.5e-3, 1e-2, 3e-2, 0.1, 0.3),
        contrib.schedule_free_eval_params,
    ),
    "nadamw_cosine": Peer(
        "NadamW, cosine", nadamw, 1.75e-3, (5e-4, 1.75e-3, 5e-3, 1.75e-2, 5e-2, 0.15)
    ),
    "muon_cosine": Peer("Muon, cosine", muon, 1e-3, SMALL_RATES),
    "sgd_cosine": Peer(
        "SGD, Nesterov, cosine",
        lambda rate, steps: optax.sgd(cosine(rate, steps), momentum=0.9, nesterov=True),
        0.1,
        LARGE_RATES,
    ),
    "prodigy_cosine": Peer(
        "Prodigy, cosine",
        lambda rate, steps: contrib.prodigy(cosine(rate, steps, warmup=0.0)),
        1.0,
        FACTORS,
    ),
    "prodigy": Peer("Prodigy", lambda rate, steps: contrib.prodigy(rate), 1.0, FACTORS),
    "adam": Peer("Adam", lambda rate, steps: optax.adam(rate), 1e-3, SMALL_RATES),
    "adamw_wsd": Peer(
        "AdamW, warm-up, stable, decay",
        lambda rate, steps: optax.adamw(stable_then_decay(rate, steps)),
        1e-3,
        SMALL_RATES,
    ),
    "schedule_free_plus": Peer(
        "ScheduleFree+",
        lambda rate, steps: schedule_free_plus(rate, round(WARMUP * steps)),
        1.0,
        FACTORS,
        lambda state, params: state.x,
    ),
    "momo_adam": Peer(
        "MoMo-Adam",
        lambda rate, steps: contrib.momo_adam(rate),
        1e-2,
        SMALL_RATES,
    ),
    "mechanic": Peer(
        "Mechanic, AdamW, cosine",
        lambda rate, steps: contrib.mechanize(optax.adamw(cosine(rate, steps))),
        1.0,
        FACTORS,
    ),
    "dog": Peer(
        "DoG, averaged",
        lambda rate, steps: averaged(contrib.dog(rate)),
        1.0,
        FACTORS,
        lambda state, params: state.average,
    ),
    "dowg": Peer("DoWG", lambda rate, steps: contrib.dowg(rate), 1.0, FACTORS),
    "dadapt_adamw": Peer(
        "D-Adapt AdamW", lambda rate, steps: contrib.dadapt_adamw(rate), 1.0, FACTORS
    ),
    "mu2_sgd": Peer(
        "μ²-SGD",
        lambda rate, steps: mu2_optax.mu2_sgd(rate, mu2_optax.fixed_momentum()),
        0.1,
        LARGE_RATES,
        gradients=2,
    ),
}


def evaluation_params(name: str, state: Any, params: Any) -> Any:
    """The params at which an optimizer is evaluated."""
    return PEERS[name].evaluate(state, params)
