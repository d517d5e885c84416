"""Training steps in Flax NNX."""

import functools

import jax
import jax.numpy as jnp
import linen_steps
import numpy as np
import optax
import pytest
from cnn import (
    CLASSES,
    LinenCNN,
    NnxCNN,
    assert_close,
    batches,
    by_hand,
    cross_entropy,
    linen_variables,
    nnx_model,
    split,
)
from flax import nnx
from nnx_steps import auto_step, loss_fn, train_step
from problems import jitted_step

import mu2_optax
import mu2_optax.linen as mu2_linen
import mu2_optax.nnx as mu2_nnx

pytestmark = pytest.mark.usefixtures("compiled_quickly")

EXTRA = mu2_optax.mu2_extra_sgd(0.1)  # which evaluates most often in a step


def params_of(model):
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@pytest.mark.parametrize("where", ["argument", "keyword", "model"])
def test_nnx_evaluations_at_one_point_share_dropout(where):
    model = nnx_model(dropout=0.5)
    rngs = nnx.Rngs(dropout=1)
    if where == "model":
        model.dropout.rngs = rngs.dropout
    (batch,) = batches(1)

    @nnx.jit
    def both(model, batch, rngs):
        evaluate = mu2_nnx.value_and_grad(loss_fn, has_aux=True)
        if where == "argument":
            _, grads, again = evaluate(model, batch, rngs)
        elif where == "keyword":
            _, grads, again = evaluate(model, batch, rngs=rngs)
        else:
            _, grads, again = evaluate(model, batch)
        point = nnx.as_pure(nnx.state(model, nnx.Param))
        return nnx.as_pure(grads), again["grad_fn"](point, again["batch"])

    passed = None if where == "model" else rngs
    first, second = both(model, batch, passed)
    assert_close(first, second, 0.0)
    next_mask, _ = both(model, batch, passed)
    assert not np.allclose(first["dense"]["kernel"], next_mask["dense"]["kernel"])
    assert int(rngs.dropout.count[...]) == 2


def test_nnx_shared_weights_and_generators_stay_shared():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.inner = nnx.Linear(6, 6, rngs=rngs)
            self.outer = self.inner
            self.drops = nnx.List([nnx.Dropout(0.5), nnx.Dropout(0.5)])
            self.drops[0].rngs = self.drops[1].rngs = rngs.dropout

        def __call__(self, x):
            return self.outer(self.drops[1](self.inner(self.drops[0](x))))

    model = Tied(nnx.Rngs(params=0, dropout=1))
    evaluate = mu2_nnx.value_and_grad(lambda model, x: jnp.mean(model(x) ** 2))

    @nnx.jit
    def both(model, x):
        _, grads, again = evaluate(model, x)
        point = nnx.as_pure(nnx.state(model, nnx.Param))
        assert len(jax.tree.leaves(point)) == 2
        return nnx.as_pure(grads), again["grad_fn"](point, again["batch"])

    assert_close(*both(model, np.ones((2, 6), np.float32)), 0.0)
    assert int(model.drops[0].rngs.count[...]) == 2


def test_nnx_statistics_come_from_the_evaluation_at_params():
    model = nnx_model()
    optimizer = nnx.Optimizer(model, EXTRA, wrt=nnx.Param)
    for batch in batches(3):
        alone = nnx.clone(model)
        nnx.jit(forward)(alone, batch)
        train_step(model, optimizer, batch)
        assert_close(nnx.state(model, nnx.BatchStat), nnx.state(alone, nnx.BatchStat), 1e-6)


def test_nnx_follows_linen_and_functions_written_by_hand():
    tx = mu2_optax.mu2_sgd(0.5, mu2_optax.fixed_momentum(beta=0.7, gamma=0.2))
    model = nnx_model()
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    variables = linen_variables()
    state = mu2_linen.TrainState.create(apply_fn=LinenCNN().apply, tx=tx, **variables)
    hand, hand_state = variables["params"], tx.init(variables["params"])
    linen_step = jax.jit(linen_steps.train_step)
    hand_step = jitted_step(tx, jax.grad(lambda p, b: cross_entropy(by_hand(p, b["image"])[0], b)))
    for batch in batches(20):
        train_step(model, optimizer, batch)
        state, _ = linen_step(state, batch)
        hand, hand_state = hand_step(hand, hand_state, batch)
        assert_close(params_of(model), state.params, 1e-5)
        assert_close(params_of(model), hand, 1e-5)
        assert_close(nnx.state(model, nnx.BatchStat), state.batch_stats, 1e-5)


def test_nnx_donated_step_is_traced_once():
    traces = 0

    @functools.partial(nnx.jit, donate_argnums=(0, 1))
    def step(model, optimizer, batch, rngs):
        nonlocal traces
        traces += 1
        evaluate = mu2_nnx.value_and_grad(loss_fn, has_aux=True)
        (loss, _), grads, again = evaluate(model, batch, rngs)
        optimizer.update(model, grads, **again)
        return loss

    model = nnx_model(dropout=0.5)
    optimizer = nnx.Optimizer(model, EXTRA, wrt=nnx.Param)
    rngs = nnx.Rngs(dropout=1)
    start = jax.tree.leaves(nnx.as_pure(nnx.state((model, optimizer), nnx.Variable)))
    for batch in batches(5):
        loss = step(model, optimizer, batch, rngs)
    assert traces == 1
    assert loss < 3  # it starts near log 10
    assert all(leaf.is_deleted() for leaf in start)
    assert int(optimizer.step[...]) == 5


def test_nnx_accumulation_equals_the_big_batch():
    big, small = nnx_model(batch_norm=False), nnx_model(batch_norm=False)
    of_big, of_small = (nnx.Optimizer(model, EXTRA, wrt=nnx.Param) for model in (big, small))

    @nnx.jit
    def accumulating_step(model, optimizer, batches):
        evaluate = mu2_nnx.value_and_grad(loss_fn, has_aux=True, accumulate=True)
        (loss, logits), grads, again = evaluate(model, batches)
        optimizer.update(model, grads, **again)
        return loss, logits

    for batch in batches(5):
        big_loss = train_step(big, of_big, batch)
        loss, logits = accumulating_step(small, of_small, split(batch, 4))
        assert logits.shape == (4, 4, CLASSES)
        np.testing.assert_allclose(loss, big_loss, atol=1e-6)
        assert_close(params_of(small), params_of(big), 1e-6)


def test_nnx_microbatches_advance_statistics_one_by_one():
    model, alone = nnx_model(dropout=0.5), nnx_model(dropout=0.5)
    rngs, rngs_alone = nnx.Rngs(dropout=1), nnx.Rngs(dropout=1)
    (batch,) = batches(1)

    @nnx.jit
    def both(model, batches, rngs):
        evaluate = mu2_nnx.value_and_grad(loss_fn, has_aux=True, accumulate=True)
        _, grads, again = evaluate(model, batches, rngs)
        point = nnx.as_pure(nnx.state(model, nnx.Param))
        return nnx.as_pure(grads), again["grad_fn"](point, again["batch"])

    first, second = both(model, split(batch, 4), rngs)
    assert_close(first, second, 0.0)
    grad = nnx.jit(nnx.grad(loss_fn, has_aux=True))
    one_by_one = [
        nnx.as_pure(grad(alone, jax.tree.map(lambda a, i=i: a[i], split(batch, 4)), rngs_alone)[0])
        for i in range(4)
    ]
    assert_close(first, jax.tree.map(lambda *g: sum(g) / 4, *one_by_one), 1e-6)
    assert_close(nnx.state(model, nnx.BatchStat), nnx.state(alone, nnx.BatchStat), 1e-6)
    assert int(rngs.dropout.count[...]) == int(rngs_alone.dropout.count[...]) == 4


@pytest.mark.parametrize("filtered_gradients", [False, True])
def test_nnx_filter_moves_a_subset_alone(filtered_gradients):
    dense = nnx.All(nnx.Param, nnx.PathContains("dense"))
    model = nnx_model()
    start = jax.tree.map(jnp.copy, params_of(model))
    tx = mu2_optax.mu2_sgd(0.5)
    optimizer = nnx.Optimizer(model, tx, wrt=dense)
    hand, hand_state = start["dense"], tx.init(start["dense"])
    argnums = nnx.DiffState(0, dense) if filtered_gradients else 0

    @nnx.jit
    def step(model, optimizer, batch):
        evaluate = mu2_nnx.value_and_grad(loss_fn, argnums=argnums, has_aux=True)
        _, grads, again = evaluate(model, batch)
        optimizer.update(model, grads, **again)

    of_dense = lambda p, b: cross_entropy(by_hand({**start, "dense": p}, b["image"])[0], b)
    hand_step = jitted_step(tx, jax.grad(of_dense))
    for batch in batches(5):
        step(model, optimizer, batch)
        hand, hand_state = hand_step(hand, hand_state, batch)
    assert_close(params_of(model), {**start, "dense": hand}, 1e-5)
    assert_close(params_of(model)["conv"], start["conv"], 0.0)


def test_nnx_gradients_of_fewer_variables_are_refused():
    model = nnx_model()
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_sgd(0.5), wrt=nnx.Param)
    argnums = nnx.DiffState(0, nnx.PathContains("dense"))
    evaluate = mu2_nnx.value_and_grad(loss_fn, argnums=argnums, has_aux=True)

    def step(model, optimizer, batch):
        _, grads, again = evaluate(model, batch)
        optimizer.update(model, grads, **again)

    with pytest.raises(ValueError, match=r"no leaf at .*conv"):
        nnx.eval_shape(step, model, optimizer, *batches(1))


def test_nnx_model_may_be_any_argument():
    def loss_fn(scale, model, image, kind, label=None):
        assert kind == "cross entropy"
        return scale * cross_entropy(model(image), {"label": label})

    model = nnx_model()
    (batch,) = batches(1)
    evaluate = mu2_nnx.value_and_grad(loss_fn, argnums=1)

    @nnx.jit
    def both(model, image, label):
        loss, grads, again = evaluate(2.0, model, image, "cross entropy", label=label)
        point = nnx.as_pure(nnx.state(model, nnx.Param))
        assert loss.shape == ()
        return nnx.as_pure(grads), again["grad_fn"](point, again["batch"])

    assert_close(*both(model, batch["image"], batch["label"]), 1e-6)


class Sowing(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.ones(3))

    def __call__(self, x):
        self.sow(nnx.Intermediate, "activations", x * self.w[...])
        return jnp.sum(x * self.w[...])


@pytest.mark.filterwarnings("ignore:.*Module.sow:DeprecationWarning")
def test_nnx_refuses_what_is_sown_over_microbatches():
    evaluate = mu2_nnx.value_and_grad(lambda model, x: model(x), accumulate=True)
    with pytest.raises(ValueError, match=r"`loss_fn` must leave .* `nnx.pop\(model"):
        evaluate(Sowing(), jnp.ones((4, 3)))

    def popping(model, x):
        loss = model(x)
        return loss, nnx.as_pure(nnx.pop(model, nnx.Intermediate))

    evaluate = mu2_nnx.value_and_grad(popping, has_aux=True, accumulate=True)
    (_, sown), _, _ = evaluate(Sowing(), jnp.arange(12.0).reshape(4, 3))
    np.testing.assert_array_equal(sown["activations"][0], jnp.arange(12.0).reshape(4, 3))


def test_nnx_step_serves_plain_optimizers():
    """SGD ignores ``again``, and does what it does in Flax's own step."""
    (batch,) = batches(1)
    ours, flax_own = nnx_model(), nnx_model()
    train_step(ours, nnx.Optimizer(ours, optax.sgd(0.1), wrt=nnx.Param), batch)
    optimizer = nnx.Optimizer(flax_own, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def their_step(model, optimizer, batch):
        grads, _ = nnx.grad(loss_fn, has_aux=True)(model, batch, None)
        optimizer.update(model, grads)

    their_step(flax_own, optimizer, batch)
    assert_close(params_of(ours), params_of(flax_own), 1e-6)


def test_nnx_value_and_grad_refuses_bad_arguments():
    with pytest.raises(TypeError, match=r"`argnums` must be .* got \(0, 1\)"):
        mu2_nnx.value_and_grad(loss_fn, argnums=(0, 1))
    with pytest.raises(TypeError, match="`loss_fn` must be a function"):
        mu2_nnx.value_and_grad("loss")


def forward(model, batch):
    return model(batch["image"])


def test_nnx_recalibrate_gives_the_mean_statistics():
    model = nnx_model()
    model.norm.mean[...] = model.norm.mean[...] + 1e6
    data = list(batches(4))
    statistics = [by_hand(params_of(model), batch["image"])[1] for batch in data]
    mean, var = (sum(s) / 4 for s in zip(*statistics, strict=True))
    before = params_of(model)
    model.eval()
    mu2_nnx.recalibrate(forward, model, data)
    assert_close(nnx.state(model, nnx.BatchStat), {"norm": {"mean": mean, "var": var}}, 1e-5)
    assert_close(params_of(model), before, 0.0)
    assert model.norm.momentum == 0.9
    assert model.norm.use_running_average


class Renamed(nnx.BatchNorm):
    """A BatchNorm with a call of its own."""

    def __call__(self, x):
        return super().__call__(x)


@pytest.mark.parametrize("kind", [nnx.BatchNorm, Renamed])
def test_nnx_recalibrate_is_the_mean_over_two_calls(kind):
    model = kind(2, rngs=nnx.Rngs(0))
    data = 1 + 2 * jax.random.normal(jax.random.key(0), (3, 64, 2))
    mu2_nnx.recalibrate(lambda norm, batch: norm(3 * norm(batch) + 5), model, data)
    first_mean, first_var = data.mean(1).mean(0), data.var(1).mean(0)
    np.testing.assert_allclose(model.mean[...], (first_mean + 5) / 2, rtol=1e-4)
    np.testing.assert_allclose(model.var[...], (first_var + 9) / 2, rtol=1e-4)
    assert type(model) is kind
    assert model.momentum == 0.99


def test_nnx_recalibrate_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="got none; pass a list"):
        mu2_nnx.recalibrate(forward, nnx_model(), [])
    evaluating = lambda model, batch: model.norm(model.conv(batch["image"]), True)
    with pytest.raises(ValueError, match="1 of 1 that kept its statistics"):
        mu2_nnx.recalibrate(evaluating, nnx_model(), batches(1))
    with pytest.raises(ValueError, match="got a model without"):
        mu2_nnx.recalibrate(forward, NnxCNN(nnx.Rngs(0), batch_norm=False), batches(1))


def test_nnx_part_is_evaluated_with_its_own_forward():
    """Each evaluation of S, at params and elsewhere, is Flax's own gradient on S."""
    (batch,) = batches(1)
    few = jax.tree.map(lambda a: np.asarray(a)[:4], batch)
    model, rngs = nnx_model(dropout=0.3), nnx.Rngs(dropout=1)
    fresh = lambda: (nnx.clone(model), nnx.clone(rngs))
    their_grad = nnx.jit(nnx.value_and_grad(loss_fn, has_aux=True))
    theirs, their_rngs = fresh()
    expected, whole = their_grad(theirs, batch, their_rngs)
    shifts = (0.0, 0.1)
    shifted = lambda model, shift: jax.tree.map(lambda p: p + shift, nnx.state(model, nnx.Param))

    @nnx.jit
    def our_grads(model, batch, rngs):
        points = [nnx.as_pure(shifted(model, shift)) for shift in shifts]
        evaluate = mu2_nnx.value_and_grad(loss_fn, has_aux=True, part=1 / 4)
        first, grads, again = evaluate(model, batch, rngs)
        assert again["grad_fn"].share == 1 / 4
        return first, grads, [again["grad_fn"].on_part(p, again["batch"]) for p in points]

    ours, our_rngs = fresh()
    first, grads, of_parts = our_grads(ours, batch, our_rngs)
    assert_close((first, nnx.to_pure_dict(grads)), (expected, nnx.to_pure_dict(whole)), atol=1e-6)
    assert_close(nnx.state(ours), nnx.state(theirs), atol=1e-6)  # statistics of the whole batch
    for shift, found in zip(shifts, of_parts, strict=True):
        at, rngs_at = fresh()
        nnx.update(at, shifted(at, shift))
        _, of_part = their_grad(at, few, rngs_at)
        assert_close(nnx.to_pure_dict(nnx.State(found)), nnx.to_pure_dict(of_part), atol=1e-6)


def test_nnx_part_serves_an_optimizer_of_some_variables():
    class Two(nnx.Module):
        def __init__(self):
            self.body, self.head = (nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(2))

    loss_fn = lambda model, x: jnp.mean(model.head(jnp.tanh(model.body(x))) ** 2)
    model, x = Two(), jax.random.normal(jax.random.key(0), (8, 2))

    @nnx.jit
    def both(model, x):
        _, _, again = mu2_nnx.value_and_grad(loss_fn, part=1 / 4)(model, x)
        return [
            again["grad_fn"](nnx.as_pure(nnx.state(model, wrt)), again["batch"])
            for wrt in (nnx.Param, nnx.All(nnx.Param, nnx.PathContains("head")))
        ]

    of_all, of_head = both(model, x)
    assert list(of_head) == ["head"]
    assert_close(of_head["head"], of_all["head"], atol=1e-7)


@pytest.mark.slow
def test_nnx_part_of_microbatches_is_evaluated_once():
    lengths = []

    def counted(model, batch, rngs):
        lengths.append(len(batch["image"]))
        return loss_fn(model, batch, rngs)

    (batch,) = batches(1)
    model, rngs = nnx_model(dropout=0.3), nnx.Rngs(dropout=1)
    others = nnx.clone(model), nnx.clone(rngs)
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_sgd(0.1), wrt=nnx.Param)
    run = lambda model, rngs, **options: mu2_nnx.value_and_grad(
        counted, has_aux=True, accumulate=True, **options
    )(model, split(batch, 4), rngs)
    (loss, logits), grads, again = run(model, rngs, part=1 / 4)
    (whole_loss, whole_logits), whole_grads, _ = run(*others)
    np.testing.assert_allclose((loss, *logits.ravel()), (whole_loss, *whole_logits.ravel()), 1e-5)
    assert_close(nnx.to_pure_dict(grads), nnx.to_pure_dict(whole_grads), atol=1e-6)
    assert_close(nnx.state(model, nnx.BatchStat), nnx.state(others[0], nnx.BatchStat), atol=1e-6)
    # Only the first of the four microbatches is evaluated again.
    assert {len(leaf) for leaf in jax.tree.leaves(again["batch"])} == {1}
    before = len(lengths)
    optimizer.update(model, grads, **again)
    assert len(lengths) > before


def test_nnx_part_by_a_function_must_return_arguments():
    (batch,) = batches(1)
    with pytest.raises(TypeError, match=r"must return the loss's other arguments"):
        mu2_nnx.value_and_grad(loss_fn, has_aux=True, part=lambda batch: batch)(nnx_model(), batch)


def test_nnx_part_by_a_function_takes_data_by_name():
    def loss_fn(model, images, labels, scale=1.0):
        return scale * jnp.mean((model(images) - labels) ** 2)

    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    x, y = jax.random.normal(jax.random.key(0), (8, 2)), jnp.arange(8.0)[:, None]
    few = lambda images, labels, scale=1.0: (images[:2], labels[:2], scale)
    evaluate = mu2_nnx.value_and_grad(loss_fn, part=few)
    expected = nnx.grad(loss_fn)(model, x[:2], y[:2], 2.0)
    calls = (
        evaluate(model, x, y, 2.0),
        evaluate(model, x, labels=y, scale=2.0),
        evaluate(model, scale=2.0, labels=y, images=x),
    )
    for value, _, again in calls:
        np.testing.assert_allclose(value, loss_fn(model, x, y, 2.0), rtol=1e-6)
        point = nnx.as_pure(nnx.state(model, nnx.Param))
        found = again["grad_fn"].on_part(point, again["batch"])
        np.testing.assert_allclose(found["kernel"], expected["kernel"][...], rtol=1e-5)
        assert again["grad_fn"].share == 0.25


def test_nnx_step_without_the_adapter_is_refused():
    model = nnx_model()
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_sgd(0.1), wrt=nnx.Param)
    grads = nnx.state(model, nnx.Param)
    told = r"`mu2_sgd` evaluates .* mu2_optax\.nnx\.value_and_grad\(loss_fn\)\(model, \.\.\.\)"
    with pytest.raises(ValueError, match=told) as error:
        optimizer.update(model, grads)
    assert "linen" not in str(error.value)


def test_nnx_eval_model_is_a_copy_to_recalibrate():
    model = nnx_model()
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_auto(), wrt=nnx.Param)
    step = nnx.jit(auto_step)
    data = list(batches(12))
    for batch in data:
        step(model, optimizer, batch)
    before = jax.tree.map(jnp.copy, nnx.as_pure(nnx.state(model)))
    average = mu2_nnx.eval_model(model, optimizer)
    expected = mu2_optax.eval_params(optimizer, nnx.state(model, nnx.Param))
    assert_close(params_of(average), nnx.to_pure_dict(expected), 0.0)
    assert not np.allclose(average.dense.kernel[...], model.dense.kernel[...], atol=1e-4)
    np.testing.assert_array_equal(average.norm.mean[...], model.norm.mean[...])
    mu2_nnx.recalibrate(lambda model, batch: model(batch["image"]), average, data)
    by_hand_jitted = jax.jit(by_hand)
    seen = [by_hand_jitted(params_of(average), batch["image"])[1] for batch in data]
    mean, var = (np.mean(each, axis=0) for each in zip(*seen, strict=True))
    np.testing.assert_allclose(average.norm.mean[...], mean, atol=1e-5)
    np.testing.assert_allclose(average.norm.var[...], var, atol=1e-5)
    assert_close(nnx.as_pure(nnx.state(model)), before, 0.0)  # of the original nothing has changed


def test_nnx_eval_model_works_under_jit_and_for_a_part():
    model = nnx_model()
    head = nnx.All(nnx.Param, nnx.PathContains("dense"))
    tx = optax.chain(optax.clip_by_global_norm(1.0), mu2_optax.mu2_auto())
    optimizer = nnx.Optimizer(model, tx, wrt=head)

    @nnx.jit
    def step(model, optimizer, batch):
        grads, _ = nnx.grad(loss_fn, argnums=nnx.DiffState(0, head), has_aux=True)(model, batch)
        optimizer.update(model, grads)

    for batch in batches(4):
        step(model, optimizer, batch)
    average = nnx.jit(mu2_nnx.eval_model)(model, optimizer)
    np.testing.assert_array_equal(average.conv.kernel[...], model.conv.kernel[...])
    expected = mu2_optax.eval_params(optimizer, nnx.state(model, head))
    np.testing.assert_allclose(
        average.dense.kernel[...], expected["dense"]["kernel"][...], atol=1e-6
    )
    assert not np.allclose(average.dense.kernel[...], model.dense.kernel[...], atol=1e-5)
