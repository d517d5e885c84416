"""Where a rate may grow for no reason: targets that follow the params, and plateaus without noise.

    python -m benchmarks.growth

Q-learning on a random decision process, whose target is a copy of the params that moves by 1 % of
the way in each step, judged by the error of all values; and a physics-informed network on 50 fixed
points, judged by its solution on others, where u = 0 is a plateau on which all steps agree. Three
seeds, 6000 steps: Adam at 10⁻³, and ``mu2_auto`` at its average and at its params, with the norm of
the params at the end over that at the start, and the largest rate that it found. It takes four
minutes on one core of an x86-64 CPU and writes ``benchmarks/results/growth/results.csv``. Expected:
neither the rate nor the params run away, and the errors are not above Adam's.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from benchmarks.self_tuning.task import TEST, apply_layers, layers
from benchmarks.training import Functions, run_measured
from examples.option_types import positive_int

STATES, ACTIONS, FEATURES = 200, 3, 8
FOLLOWS = 0.01  # the share by which the target moves towards the params in each step
POINTS, END = 50, 8.0  # fixed points, and where the interval of the oscillation ends


def load_decisions(discount: float) -> Any:
    """A random decision process whose states are seen as features, and its optimal values."""
    rng = np.random.default_rng(8)
    place = rng.uniform(-1, 1, (STATES, 2))
    goal = place[rng.integers(STATES, size=(STATES, ACTIONS))] * 0.3 + 0.7 * place[:, None]
    near = np.exp(-30 * ((goal[:, :, None] - place) ** 2).sum(-1))
    chances = near / near.sum(-1, keepdims=True)
    rewards = np.exp(-8 * ((place - 0.5) ** 2).sum(-1))
    rewards -= rewards.mean()
    values = np.zeros((STATES, ACTIONS))
    for _ in range(int(20 / (1 - discount))):
        values = rewards[:, None] + discount * chances @ values.max(1)
    rewards, values = rewards / values.std(), values / values.std()
    waves = rng.standard_normal((2, FEATURES)) * 2
    seen = np.concatenate([place, np.sin(place @ waves)], 1)
    names = ("seen", "chances", "rewards", "values")
    arrays = (seen, chances, rewards, values)
    found = {n: a.astype(np.float32) for n, a in zip(names, arrays, strict=True)}
    return found | {"discount": np.float32(discount)}


def bootstrapped(data: Any, batch: int = 32) -> Functions:
    """Q-learning, whose target is a copy of the params that follows them; judged by the values."""
    network = lambda params, rows: apply_layers(params, data["seen"][rows], jax.nn.relu)

    def init(key: Any) -> Any:
        *hidden, last = layers(key, (2 + FEATURES, 64, 64, ACTIONS), 2**0.5)
        return [*hidden, jax.tree.map(lambda leaf: 0.1 * leaf, last)]

    def draw(key: Any, steps: int) -> Any:
        keys = jax.random.split(key, 3)
        rows = jax.random.randint(keys[0], (steps, batch), 0, STATES)
        actions = jax.random.randint(keys[1], (steps, batch), 0, ACTIONS)
        return rows, actions, jax.random.split(keys[2], steps)

    def collect(world: Any, params: Any, row: Any) -> tuple[Any, Any]:
        target, t = world
        share = jnp.where(t == 0, 1, FOLLOWS)
        target = jax.tree.map(lambda a, p: a + share * (p - a), target, params)
        rows, actions, key = row
        then = jax.random.categorical(key, jnp.log(data["chances"][rows, actions]))
        best = network(target, then).max(-1)
        return (rows, actions, data["rewards"][rows] + data["discount"] * best), (target, t + 1)

    def loss(params: Any, some: Any) -> Any:
        rows, actions, wanted = some
        found = jnp.take_along_axis(network(params, rows), actions[:, None], 1)[:, 0]
        return ((found - wanted) ** 2).mean()

    def measure(params: Any, rows: Any, part: str) -> Any:
        del rows, part
        found, values = network(params, jnp.arange(STATES)), data["values"]
        return jnp.sqrt(((found - values) ** 2).mean() / jnp.var(values))

    zeros = jax.tree.map(jnp.zeros_like, init(jax.random.key(0)))
    return Functions(
        init, draw, None, loss, measure, world=lambda key: (zeros, jnp.int32(0)), collect=collect
    )


def load_times() -> Any:
    """Times of the interval to measure at."""
    rng = np.random.default_rng(9)
    draw = lambda: rng.uniform(0, END, 500).astype(np.float32)
    return {"validation": draw(), "test": draw()}


def oscillation(data: Any) -> Functions:
    """A physics-informed network for u″ + .2u′ + 4u = 0 on few fixed points; u = 0 is a plateau."""
    decay, turn = 0.1, (4 - 0.01) ** 0.5
    solution = lambda x: (
        jnp.exp(-decay * x) * (jnp.cos(turn * x) + decay / turn * jnp.sin(turn * x))
    )
    points = jnp.linspace(0, END, POINTS)

    def network(params: Any, x: Any) -> Any:
        return apply_layers(params, x[..., None], jnp.tanh)[..., 0]

    def loss(params: Any, row: Any) -> Any:
        del row
        u = lambda x: network(params, x)
        du = lambda x: jax.jvp(u, (x,), (jnp.ones_like(x),))[1]
        ddu = jax.jvp(du, (points,), (jnp.ones_like(points),))[1]
        zero = jnp.zeros(())
        equation = ddu + 2 * decay * du(points) + 4 * u(points)
        return (equation**2).mean() + 10 * ((u(zero) - 1) ** 2 + du(zero) ** 2)

    return Functions(
        init=lambda key: layers(key, (1, 32, 32, 32, 1)),
        draw=lambda key, steps: jnp.zeros(steps),
        batch=lambda row: row,
        loss=loss,
        measure=lambda params, rows, part: jnp.sqrt(
            ((network(params, data[part]) - solution(data[part])) ** 2).mean()
            / (solution(data[part]) ** 2).mean()
        ),
    )


TASKS = {
    "Q-learning, discount .9": (lambda: load_decisions(0.9), bootstrapped),
    "Q-learning, discount .97": (lambda: load_decisions(0.97), bootstrapped),
    "oscillation on 50 points": (load_times, oscillation),
}
OPTIMIZERS = {
    "Adam(1e-3)": lambda: optax.adam(1e-3),
    "mu2_auto()": mu2_optax.mu2_auto,
    "mu2_auto(spectral=True)": lambda: mu2_optax.mu2_auto(spectral=True),
}


def train(load: Any, make: Any, tx: Any, steps: int, seeds: int, ours: bool) -> dict[str, Any]:
    """Errors at the end, and what has grown, over seeds."""
    data = jax.tree.map(jnp.asarray, load())

    @jax.jit
    def run(seed: Any) -> dict[str, Any]:
        functions = make(data)
        init_key, draw_key, world_key = jax.random.split(jax.random.key(seed), 3)
        rows, start = functions.draw(draw_key, steps), functions.init(init_key)

        def measure(params: Any, state: Any, rows: Any) -> Any:
            average = mu2_optax.eval_params(state, params, default=params)
            rate = mu2_optax.found_rate(state) if ours else jnp.nan
            errors = (functions.measure(p, rows, TEST) for p in (average, params))
            return *errors, rate, optax.tree.norm(params) / optax.tree.norm(start)

        beginning = (start, rows, functions.world(world_key))
        *_, (average, params, rate, grown) = run_measured(functions, tx, beginning, measure, 20)
        return {
            "error_at_the_average": average[-1],
            "at_the_params": params[-1],
            "largest_rate": rate.max(),
            "growth_of_the_norm": grown[-1],
        }

    found = [jax.device_get(run(seed)) for seed in range(seeds)]
    return {name: float(np.mean([row[name] for row in found])) for name in found[0]}


def main() -> None:
    """Trains, prints and writes the means over seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N")
    parser.add_argument("--steps", type=positive_int, default=6000, metavar="N")
    args = parser.parse_args()
    rows = []
    for task, functions in TASKS.items():
        for name, make in OPTIMIZERS.items():
            ours = name.startswith("mu2")
            found = train(*functions, make(), args.steps, args.seeds, ours)
            rows.append({"task": task, "optimizer": name} | found)
            print(*rows[-1].values(), flush=True)
    write_rows(RESULTS / "growth" / "results.csv", rows, digits=4)


if __name__ == "__main__":
    main()
