"""The average as the params of a loop that hands out no state."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from auto_problem import START, average, batches, gradient, train
from commands import call

import mu2_optax as m
from benchmarks import files, shown_average

EVERY, STEPS = 4, 12
ahead = m.mu2_auto()


def by_hand(steps, moved=lambda t: 0.0):
    """What the loop sees after each step: y, and the average after each fourth step."""
    step = jax.jit(ahead.update)
    y, state, shown = START, ahead.init(START), START
    for t, batch in enumerate(batches(steps), 1):
        updates, state = step(gradient(shown, batch), state, y)
        y = optax.apply_updates(y, updates)
        shown = average(state, y) if t % EVERY == 0 else y
        y, shown = (jax.tree.map(lambda p, t=t: p + moved(t), tree) for tree in (y, shown))
        yield shown


def in_a_loop(steps, moved=lambda t: 0.0, knows_params=True):
    tx = m.show_average(ahead, EVERY)
    step = jax.jit(tx.update)
    params, state = START, tx.init(START)
    for t, batch in enumerate(batches(steps), 1):
        known = (params,) if knows_params else ()
        updates, state = step(gradient(params, batch), state, *known)
        params = optax.apply_updates(params, updates)
        params = jax.tree.map(lambda p, t=t: p + moved(t), params)
        yield params


def assert_close(tree, other):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, tree, other)


@pytest.mark.parametrize("knows_params", [True, False])
def test_show_average_shows_it_after_every_so_many_steps(knows_params):
    loops = in_a_loop(STEPS, knows_params=knows_params), by_hand(STEPS)
    for found, expected in zip(*loops, strict=True):
        assert_close(found, expected)


def test_show_average_follows_what_the_loop_does_to_params():
    moved = lambda t: {4: 0.1, 6: -0.2}.get(t, 0.0)  # at the average, and between
    for found, expected in zip(in_a_loop(STEPS, moved), by_hand(STEPS, moved), strict=True):
        assert_close(found, expected)


def test_show_average_after_every_step_is_averaging_with_no_step_ahead():
    expected, _ = train(
        m.anytime(m.distance_rate(m.unit_directions()), m.polynomial_momentum(2).gamma)
    )
    found, _ = train(m.show_average(m.mu2_auto(), 1))
    assert_close(found, expected)


def test_show_average_keeps_narrow_params_narrow():
    tx = m.show_average(ahead, 1)
    params = jnp.array([1.0, -2.0, 3.0], jnp.bfloat16)
    state = tx.init(params)
    for _ in range(3):
        updates, state = jax.jit(tx.update)(2 * params, state, params)
        assert updates.dtype == jnp.bfloat16
        params = optax.apply_updates(params, updates)
    # The step to it is rounded to bfloat16, and then their sum.
    shown = m.eval_params(state.inner_state, state.params)
    np.testing.assert_allclose(params.astype(float), shown.astype(float), rtol=2**-7)


def test_show_average_refuses_what_has_none():
    with pytest.raises(ValueError, match="must hold exactly one average of the params, got 0"):
        m.show_average(optax.sgd(0.1), 10).init(START)
    with pytest.raises(ValueError, match="`every` must be an integer of at least 1, got 0"):
        m.show_average(ahead, 0)


@pytest.mark.slow
def test_shown_average_is_compared_with_other_ways(tmp_path, monkeypatch):
    monkeypatch.setattr(shown_average, "RESULTS", tmp_path)
    call(shown_average, monkeypatch, "--tasks", "factorization", "--steps", 100, "--seeds", 1)
    (row,) = files.read_rows(tmp_path / "shown_average" / "results.csv")
    losses = {way: float(row[way]) for way in shown_average.WAYS}
    assert losses["show_average"] == pytest.approx(losses["average"], rel=0.05)
    assert losses["steps=T"] == pytest.approx(losses["average"], rel=0.1)
