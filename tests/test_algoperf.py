"""The submission to AlgoPerf, against a stand-in for its harness."""

import functools
import inspect
from unittest import mock

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import mu2_optax
from benchmarks.algoperf import stand_in
from mu2_optax.sweep import Data

SIZE = 8  # of a batch, one example for each device


def submission_on(devices):
    with mock.patch.object(jax, "devices", return_value=jax.devices()[:devices]):
        return stand_in.load_submission()


SUBMISSION = submission_on(1)

COMMON = (
    "workload current_param_container current_params_types model_state hyperparameters {} "
    "loss_type optimizer_state eval_results global_step rng"
)
SIGNATURES = {  # of `algoperf/spec.py`
    "get_batch_size": "workload_name",
    "init_optimizer_state": "workload model_params model_state hyperparameters rng",
    "update_params": COMMON.format("batch") + " train_state",
    "prepare_for_eval": COMMON.format(""),
    "data_selection": "workload input_queue optimizer_state current_param_container model_state "
    "hyperparameters global_step rng",
}


def images(count=44):
    """Four kinds of noisy images; the last batch of a pass over them is padded."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((4, 8, 8, 1))

    def draw(count):
        labels = rng.integers(0, 4, count).astype(np.int32)
        noise = 0.3 * rng.standard_normal((count, 8, 8, 1))
        return (means[labels] + noise).astype(np.float32), labels

    return Data(*draw(count), *draw(40))


class Normed(linen.Module):
    """As the speech models' own BatchNorm: the statistics get more axes in the first update."""

    momentum: float = 0.9

    @linen.compact
    def __call__(self, x, train=True):
        # Without a bias, whose gradient would be rounding alone: the mean is taken off again.
        x = 100 * linen.Dense(5, use_bias=False)(x.reshape(len(x), -1))
        mean = self.variable("batch_stats", "mean", jnp.zeros, (5,))
        var = self.variable("batch_stats", "var", jnp.ones, (5,))
        if train:
            now = x.mean(0, keepdims=True), x.var(0, keepdims=True)
            for running, value in zip((mean, var), now, strict=True):
                running.value = self.momentum * running.value + (1 - self.momentum) * value
        else:
            now = mean.value, var.value
        return linen.Dense(10)((x - now[0]) / jnp.sqrt(now[1] + 1e-3))


@functools.cache  # one compiled step for all tests of a model
def workload(model):
    return stand_in.Workload(model, images())


PLAIN, NORMED = stand_in.MLP(), Normed()


def run(work, steps, evaluate_at=(), submission=SUBMISSION):
    seen = []
    end = stand_in.train_once(submission, work, SIZE, steps, evaluate_at, evaluated=seen.append)
    return end, seen


def assert_equal(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, tree, other)


@pytest.mark.parametrize("name", SIGNATURES)
def test_submission_has_the_arguments_that_the_runner_passes(name):
    assert list(inspect.signature(getattr(SUBMISSION, name)).parameters) == SIGNATURES[name].split()


@pytest.mark.parametrize("model", [NORMED, PLAIN], ids=["BatchNorm", "no statistics"])
def test_submission_trains_after_evaluations_as_without_them_bit_for_bit(model):
    (one, params, statistics), _ = run(workload(model), 9)
    (other, *ends), seen = run(workload(model), 9, evaluate_at=(2, 3, 7))
    assert [evaluation.step for evaluation in seen] == [2, 3, 7]
    assert_equal(ends, [params, statistics])
    assert_equal(other[0], one[0])


def test_submission_steps_are_those_of_mu2_auto_on_the_valid_examples():
    work = workload(PLAIN)
    (_, params, _), _ = run(work, 7)  # the sixth batch is half padding

    data_rng, _, model_rng, _ = jax.random.split(jax.random.key(0), 4)
    queue = work._build_input_queue(data_rng, "train", None, SIZE)
    expected, _ = work.init_model_fn(model_rng)
    matrices = jax.tree.map(lambda p: p.ndim > 1, expected)
    tx = mu2_optax.mu2_auto(weight_decay=0.1, weight_decay_mask=matrices)
    state = tx.init(expected)

    def mean_loss(params, batch):
        logits = work._model.apply({"params": params}, batch["inputs"])
        smooth = 0.9 * jax.nn.one_hot(batch["targets"], 10) + 0.01
        losses = -(smooth * jax.nn.log_softmax(logits)).sum(-1)
        return jnp.average(losses, weights=batch["weights"])

    @jax.jit
    def step(params, state, batch):
        updates, state = tx.update(jax.grad(mean_loss)(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    counts = []
    for _ in range(7):
        batch = next(queue)
        counts.append(int(batch["weights"].sum()))
        expected, state = step(expected, state, batch)
    assert counts == [8, 8, 8, 8, 8, 4, 8]
    # The loss is summed in another order; u = g/s blows up what is near zero.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), params, expected)


@pytest.mark.parametrize("momentum", [0.0, 0.999])
def test_submission_evaluates_the_average_with_its_own_statistics(momentum):
    work = workload(Normed(momentum))
    ((saved, kept), average, statistics), _ = run(work, 9, evaluate_at=(9,))
    assert len(kept) == SUBMISSION.KEPT_BATCHES
    kernel = average["Dense_0"]["kernel"]
    y = saved["training"]["params"]
    expected = mu2_optax.eval_params(saved["optimizer"], y)["Dense_0"]["kernel"]
    np.testing.assert_allclose(kernel, expected, atol=1e-7)
    assert float(abs(kernel - y["Dense_0"]["kernel"]).max()) > 1e-3
    inside = [100 * batch["inputs"].reshape(SIZE, -1) @ kernel for batch in kept]
    found = statistics["batch_stats"]
    assert float(found["var"].max()) > 1000
    # At a momentum of 0.999 in float32, 1 - m is known to one part in 10⁴.
    tolerance = {"rtol": 1e-3, "atol": 1e-2}
    means, variances = ([f(x, axis=0) for x in inside] for f in (np.mean, np.var))
    np.testing.assert_allclose(found["mean"][0], np.mean(means, 0), **tolerance)
    np.testing.assert_allclose(found["var"][0], np.mean(variances, 0), **tolerance)


def test_submission_resumes_from_a_checkpoint_of_an_evaluation():
    def through_a_checkpoint(prepare_for_eval):
        def prepared(**arguments):
            (saved, _), params, model_state = prepare_for_eval(**arguments)
            content = flax.serialization.to_bytes(saved)
            first, nothing = SUBMISSION.init_optimizer_state(
                arguments["workload"], params, model_state, None, None
            )
            return (flax.serialization.from_bytes(first, content), nothing), params, model_state

        return prepared

    class Resumed:
        def __getattr__(self, name):
            own = getattr(SUBMISSION, name)
            return through_a_checkpoint(own) if name == "prepare_for_eval" else own

    (_, *ends), _ = run(workload(NORMED), 6)
    (_, *resumed), _ = run(workload(NORMED), 6, evaluate_at=(3,), submission=Resumed())
    assert_equal(resumed, ends)


def test_submission_learns_is_logged_and_is_compiled_once():
    logged = {}

    class Logger:
        def append_scalar_metrics(self, metrics, step):
            logged[step] = metrics

    traces = []

    class Counted(stand_in.Workload):
        def loss_fn(self, label_batch, *args, **options):
            traces.extend([label_batch] * isinstance(label_batch, jax.core.Tracer))
            return super().loss_fn(label_batch, *args, **options)

    work = Counted(PLAIN, images())
    work.metrics_logger = Logger()
    (_, *average), _ = run(work, 101, evaluate_at=(50, 101))
    assert len(traces) == 1
    assert list(logged) == [0, 100]
    assert all(set(entry) == {"loss", "grad_norm", "learning_rate"} for entry in logged.values())
    assert 0 < logged[100]["loss"] < logged[0]["loss"]
    assert work.eval_model(*average)["accuracy"] > 0.95


@pytest.mark.slow
def test_submission_trains_on_eight_devices_as_on_one():
    ends = []
    for devices in (1, 8):
        (_, *end), _ = run(stand_in.Workload(NORMED, images()), 4, (2, 4), submission_on(devices))
        assert all(len(leaf.devices()) == devices for leaf in jax.tree.leaves(end))
        ends.append(end)
    # Sums over devices are in another order; u = g/s blows up what is near zero.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), *ends)
