"""Frank-Wolfe without a learning rate against tuned optimizers: logistic regression on digits.

    python -m benchmarks.theory.no_learning_rate

The data are scikit-learn's 1,797 digits of 8 x 8 pixels (nothing is downloaded): 1,437 for training
and 360 for testing, batches of 16, three passes, weights on an L2 ball around the origin.

Expected: on the ball of radius 1 the training loss of the best tuned optimizers (1.886 against
1.885), on that of radius 10 a higher one than tuned mu2-SGD's (0.400 against 0.313). Takes under
two and a half minutes on a 2-core x86-64 CPU without a GPU.
"""

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks import mixed_precision
from benchmarks.pictures import axis, lines
from benchmarks.theory.report import COLORS, points, save, write_csv
from mu2_optax import frank_wolfe, lmo, mu2_frank_wolfe

RATES = 10.0 ** np.arange(-4, 4.01, 0.5)
BATCH, PASSES, SEEDS = 16, 3, 5
RADII = (1.0, 10.0)
LINEAR = mu2_optax.linear_momentum()


def optimizers(radius):
    """Every optimizer as a function of the learning rate."""
    ball = mu2_optax.onto_l2_ball(radius)
    return {
        "μ²-SGD": ("mu2_sgd", lambda eta: mu2_optax.mu2_sgd(eta, LINEAR, projection=ball)),
        "Anytime-SGD": (
            "anytime",
            lambda eta: mu2_optax.anytime_sgd(eta, LINEAR, projection=ball),
        ),
        "SGD": ("sgd", lambda eta: mu2_optax.projected(optax.sgd(eta), ball)),
        "Adam": ("storm", lambda eta: mu2_optax.projected(optax.adam(eta), ball)),
        "μ²-Frank-Wolfe": ("mu2_frank_wolfe", lambda eta: mu2_frank_wolfe(lmo.l2_ball(radius))),
        "Frank-Wolfe, plain gradient": (
            "uniform",
            lambda eta: mu2_optax.mu2(
                frank_wolfe(lmo.l2_ball(radius)),
                mu2_optax.DoubleMomentum(1.0, 1.0, LINEAR.gamma),
            ),
        ),
    }


def main() -> None:
    """Measures and draws."""
    train, test = (
        (jnp.asarray(part["image"].reshape(-1, 64)), jnp.asarray(part["label"]))
        for part in mixed_precision.digits()
    )
    count = len(train[1])
    steps = PASSES * (count // BATCH)

    def loss(params, batch):
        images, targets = batch
        logits = images @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    grad_fn = jax.grad(loss)

    def run(build, eta, key):
        tx = build(eta)
        params = {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}
        passes = jax.random.split(key, PASSES)
        order = jax.vmap(lambda k: jax.random.permutation(k, count)[: steps // PASSES * BATCH])(
            passes
        ).reshape(steps, BATCH)

        def step(carry, picked):
            params, state = carry
            batch = (train[0][picked], train[1][picked])
            grads = grad_fn(params, batch)
            updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), order)
        predicted = jnp.argmax(test[0] @ params["w"] + params["b"], -1)
        return loss(params, train), jnp.mean(predicted == test[1])

    keys = jax.random.split(jax.random.key(0), SEEDS)
    rows, drawn, looks = [], [], {}
    for radius in RADII:
        for name, (color, build) in optimizers(radius).items():
            no_rate = "Frank" in name
            grid = RATES[:1] if no_rate else RATES
            sweep = jax.jit(
                jax.vmap(jax.vmap(lambda e, k, b=build: run(b, e, k), (None, 0)), (0, None))
            )
            losses, accuracies = map(np.asarray, sweep(jnp.asarray(grid), keys))
            for eta, value, accuracy in zip(grid, losses, accuracies, strict=True):
                rows.append(
                    {
                        "radius": radius,
                        "method": name,
                        "learning_rate": "" if no_rate else float(eta),
                        "train_loss": float(value.mean()),
                        "train_loss_std": float(value.std()),
                        "test_accuracy": float(accuracy.mean()),
                        "test_accuracy_std": float(accuracy.std()),
                    }
                )
            best = int(np.nanargmin(losses.mean(1)))
            at_best = f"{losses.mean(1)[best]:.4f} ± {losses[best].std():.4f}"
            print(f"radius {radius:g}, {name}: best train loss {at_best} at {grid[best]:.2g}")
            for what, values in (("training loss", losses), ("test accuracy", accuracies)):
                at = RATES[[0, -1]] if no_rate else grid
                means = np.broadcast_to(values.mean(1), at.shape)
                drawn += points(name, at, means, f"{what}, ball of radius {radius:g}")
            looks[name] = (COLORS[color], (6, 3) if no_rate else ())
    write_csv("no_learning_rate", rows)
    x, y = axis(alt.X, "x", "learning rate", log=True), axis(alt.Y, "y", "")
    chart = lines(drawn, x, y, looks, size=(330, 180), columns=2, marks=True, legend=3)
    save(chart, "no_learning_rate")


if __name__ == "__main__":
    main()
