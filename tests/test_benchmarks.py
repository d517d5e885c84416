"""The benchmarks run from end to end on tiny data, stop in time and go on."""

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import call
from tiny_data import cifar_files, write

import mu2_optax
from benchmarks import (
    batchnorm_at_the_average,
    calibration,
    character_task,
    cifar10,
    clipping,
    convex,
    digits,
    exact_gradient,
    experiment,
    files,
    forgotten_average,
    idea,
    image_tasks,
    measured_beta,
    measured_networks,
    mixed_precision,
    network_task,
    nonconvex,
    part,
    robustness,
    scanned_task,
    tables,
)
from benchmarks.optimizers import OPTIMIZERS, Setting
from benchmarks.theory import report
from mu2_optax.sweep import Data

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_the_convex_experiment_runs_from_end_to_end_and_resumes(tmp_path, monkeypatch):
    options = ["--data", "digits", "--seeds", 2, "--lrs", 0.1, 10, "--steps", 4, "--out", tmp_path]
    options += ["--evaluations", 2, "--optimizers", "mu2_sgd", "sgd", "--projections", "per_tensor"]

    def full_disk(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "write", full_disk)
        with pytest.raises(OSError, match="no space left"):
            call(convex, monkeypatch, *options)
    assert (tmp_path / "journal" / "per_tensor-mu2_sgd-4.jsonl").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "run", only_resuming(experiment.run))
        call(convex, monkeypatch, *options)
    names = ["curves.csv", "curves.png", "figure.png", "meta.json", "results.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    results = experiment.load(tmp_path)
    assert list(results) == ["per_tensor/mu2_sgd/4", "per_tensor/sgd/4"]
    assert all(result.finished.shape == (2, 2) for result in results.values())
    info = results["per_tensor/mu2_sgd/4"].info
    assert info["command"].startswith("python -m benchmarks.convex --data digits --seeds 2")
    assert info["context"]["gradients_per_step"] == 2


@pytest.mark.slow
def test_the_parts_of_a_batch_are_run_at_their_cost(tmp_path, monkeypatch):
    options = ["--data", "digits", "--seeds", 2, "--lrs", 0.1, 10, "--steps", 9, "--out", tmp_path]
    options += ["--optimizers", "mu2_sgd_part_8", "mu2_sgd_measured_part_8"]
    monkeypatch.setattr(measured_beta, "PROJECTIONS", ("ball_4", "none"))
    call(part, monkeypatch, *options)
    results = experiment.load(tmp_path)
    steps = {
        label.removeprefix("ball_4/"): result.info["context"]["gradients_per_step"]
        for label, result in results.items()
        if label.startswith("ball_4")
    }
    assert steps == dict.fromkeys(
        ("mu2_sgd_part_8/8", "mu2_sgd_measured_part_8/9", "mu2_sgd_measured_part_8/8"), 1.125
    )
    assert len(results) == 6
    accuracies = [results[f"none/{name}_part_8/8"] for name in ("mu2_sgd", "mu2_sgd_measured")]
    assert np.any(accuracies[0].metric("test_loss") != accuracies[1].metric("test_loss"))


def only_resuming(run):
    """``experiment.run`` that must find every run in the journals."""

    def resumed(*args, **options):
        results = run(*args, **options)
        assert all(result.info["run_seconds"] == 0 for result in results.values())
        return results

    return resumed


def watch(monkeypatch, seen):
    """Calls ``seen(seed)`` when a run of the CNN begins."""
    make_train = nonconvex.make_train

    def watched(train):
        def run(learning_rate, key):
            seen(experiment.seed_of(key))
            return train(learning_rate, key)

        return run

    monkeypatch.setattr(
        nonconvex, "make_train", lambda data: lambda case: watched(make_train(data)(case))
    )


@pytest.mark.slow
def test_the_cnn_experiment_is_interrupted_and_goes_on(tmp_path, monkeypatch):
    options = ["--data", "digits", "--seeds", 2, "--lrs", 0.1, "--steps", 2, "--out", tmp_path]
    options += ["--optimizers", "sgd", "schedule_free_sgd"]
    runs = []

    def interrupt_the_second(seed):
        runs.append(seed)
        if len(runs) == 2:
            raise KeyboardInterrupt

    watch(monkeypatch, interrupt_the_second)
    with pytest.raises(KeyboardInterrupt):
        call(nonconvex, monkeypatch, *options)
    assert len((tmp_path / "journal" / "none-sgd-2.jsonl").read_text().splitlines()) > 1
    call(nonconvex, monkeypatch, *options)
    assert runs == [0, 1, 1, 0, 1]  # nothing that had finished is run again
    results = experiment.load(tmp_path)
    assert len(results) == 2
    assert all(np.isfinite(result.metrics["test_loss"]).all() for result in results.values())
    assert not (tmp_path / "journal").exists()
    call(nonconvex, monkeypatch, *options)
    assert len(runs) == 5
    monkeypatch.setattr(nonconvex, "BATCH", 32)
    with pytest.raises(SystemExit, match="holds runs with batch 64, not 32: choose another folder"):
        call(nonconvex, monkeypatch, *options)


@pytest.mark.slow
def test_an_experiment_stops_in_time_and_keeps_what_has_finished(tmp_path, monkeypatch):
    options = ["--data", "digits", "--seeds", 1, "--lrs", 0.1, 1, "--steps", 2, "--out", tmp_path]
    options += ["--optimizers", "sgd", "adam"]
    ticks = itertools.count()
    hours = []
    monkeypatch.setattr(
        experiment.time, "monotonic", lambda: 3600.0 * len(hours) + next(ticks) / 1000
    )
    watch(monkeypatch, hours.append)  # every run takes an hour
    call(nonconvex, monkeypatch, *options, "--minutes", 10)
    (result,) = experiment.load(tmp_path).values()
    assert result.learning_rates.tolist() == [0.1]  # of two
    call(nonconvex, monkeypatch, *options)
    assert len(experiment.load(tmp_path)) == 2
    assert not (tmp_path / "journal").exists()


def test_a_network_sees_every_image_once_an_epoch_in_an_order_of_the_seed():
    shuffled = network_task.shuffled
    batches = list(shuffled(images=10, batch=4, seed=3, count=5))
    assert [len(rows) for rows in batches] == [4] * 5
    first, second = np.split(np.concatenate(batches), 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    longer = list(shuffled(images=10, batch=4, seed=3, count=8))
    np.testing.assert_array_equal(longer[:5], batches)  # more steps go on with the same batches
    assert (longer[0] != next(shuffled(images=10, batch=4, seed=4, count=8))).any()


def test_a_key_gives_its_seed_back():
    for seed in (0, 3, 2**31 + 5):
        assert experiment.seed_of(jax.random.key(np.uint32(seed))) == seed


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logistic", "cnn"])
def test_the_comparison_of_peers_counts_steps_and_evaluations(task, tmp_path, monkeypatch, capsys):
    options = ["--task", task, "--data", "digits", "--seeds", 1, "--lrs", 0.1, 1, "--steps", 6]
    options += ["--optimizers", "mu2_sgd", "sgd", "--out", tmp_path]
    monkeypatch.setattr(robustness, "PROJECTIONS", ("none",))
    call(robustness, monkeypatch, *options)
    contexts = [result.info["context"] for result in experiment.load(tmp_path).values()]
    kinds = {(c["optimizer"], c["steps"], c["steps"] * c["gradients_per_step"]) for c in contexts}
    assert kinds == {("mu2_sgd", 6, 12), ("mu2_sgd", 3, 6), ("sgd", 6, 6)}
    assert "sensitivity" in capsys.readouterr().out
    assert not (tmp_path / "journal").exists()
    before = (tmp_path / "meta.json").read_bytes()
    call(robustness, monkeypatch, *options)  # what is in the results is not run again
    assert (tmp_path / "meta.json").read_bytes() == before


@pytest.mark.slow
def test_the_cifar_experiment_runs_on_tiny_data(tmp_path, monkeypatch):
    write(tmp_path / "data", cifar_files(records=8))
    options = ["--data-dir", tmp_path / "data", "--width", 2, "--depth", 10, "--batch", 8]
    options += ["--steps", 2, "--seeds", 1, "--lrs", 0.1, "--out", tmp_path / "out"]
    options += ["--optimizers", "mu2_sgd", "schedule_free_sgd"]
    call(cifar10, monkeypatch, *options)
    results = experiment.load(tmp_path / "out")
    assert list(results) == ["none/mu2_sgd/2", "none/schedule_free_sgd/2"]
    assert str(tmp_path) not in results["none/mu2_sgd/2"].info["command"].split(" --out ")[0]


@pytest.mark.slow
def test_the_paper_s_cnn_in_patches_is_the_cnn():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(30, 28, 27)).astype(np.float32)
    labels = rng.integers(0, 10, 30).astype(np.int32)
    task = image_tasks.cnn_task(Data(images, labels, images[:10], labels[:10]), batch=6)
    params = task.init(jax.random.key(0))
    batch = task.batch(jnp.arange(6))

    def convolution(layer, x):
        kernel = layer["w"].reshape(5, 5, x.shape[-1], -1)
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = convolution(params["conv2"], convolution(params["conv1"], batch[0][..., None]))
    x = x.reshape(6, -1) @ params["dense1"]["w"] + params["dense1"]["b"]
    x = jax.nn.relu((x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5))
    logits = x @ params["dense2"]["w"] + params["dense2"]["b"]
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()
    np.testing.assert_allclose(task.loss(params, batch), expected, rtol=1e-5)
    accuracy, loss = task.measure(params, task.draw(jax.random.key(1), 5))
    assert 0 <= accuracy <= 1
    assert loss > 0


@pytest.mark.slow
def test_the_transformer_sees_no_character_ahead_and_learns():
    characters = character_task.text()[:3000]
    assert characters.min() == 0
    task = character_task.transformer_task(characters, batch=2)
    train = scanned_task.make_train(task, experiment.Case("adam", 30))
    found = jax.jit(train)(1e-2, jax.random.key(0))
    assert found["test_loss"] < np.log(characters.max() + 1) - 0.3
    params = task.init(jax.random.key(0))
    windows = task.batch(task.draw(jax.random.key(1), 1)[0])[:, :-1]
    other = windows.at[:, 20].set((windows[:, 20] + 1) % 50)
    change = character_task.logits_of(params, windows) - character_task.logits_of(params, other)
    changed = np.abs(change).max(axis=(0, 2)) > 0
    assert changed.tolist() == [position >= 20 for position in range(character_task.CONTEXT)]


@pytest.mark.slow
def test_the_calibration_runs_and_writes_both_errors(tmp_path, monkeypatch):
    settings = ["logistic, radius 4, rate 1", "least squares, rate 0.01", "MLP, rate 0.1"]
    options = ["--data", "digits", "--seeds", 2, "--steps", 30, "--out", tmp_path]
    call(calibration, monkeypatch, *options, "--settings", *settings)
    assert (tmp_path / "figure.png").is_file()
    rows = files.read_rows(tmp_path / "results.csv")
    marks = ["3", "10", "30"]
    assert [(row["setting"], row["step"]) for row in rows] == [
        (setting, mark) for setting in settings for mark in marks
    ]
    for row in rows:  # two seeds of thirty steps: that both are the same thing, and no more
        assert 0.1 < float(row["ratio"]) < 10
    for setting in settings:
        errors = [float(row["true"]) for row in rows if row["setting"] == setting]
        assert errors[-1] < errors[0]


@pytest.mark.slow
def test_the_calibration_knows_the_gradient_of_a_network_with_batch_norm():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(128, 28, 28)).astype(np.float32)
    labels = rng.integers(0, 10, 128).astype(np.int32)
    data = Data(images, labels, images[:10], labels[:10])
    found = calibration.calibrate(calibration.Setting("cnn", 0.1, seeds=1, steps=3), data)
    assert found.shape == (1, 1, 3)
    assert np.all(found > 0)


@pytest.mark.slow
def test_the_comparison_of_measured_beta_takes_over_what_is_known(tmp_path, monkeypatch):
    options = ["--data", "digits", "--seeds", 1, "--lrs", 0.1, 1, "--steps", 4, "--out", tmp_path]
    options += ["--optimizers", "mu2_sgd_measured", "sgd"]
    monkeypatch.setattr(measured_beta, "PROJECTIONS", ("ball_4", "none"))
    call(measured_beta, monkeypatch, *options)
    results = experiment.load(tmp_path)
    budgets = {"mu2_sgd_measured": (4, 2), "sgd": (4,)}
    assert list(results) == [
        f"{projection}/{name}/{steps}"
        for projection in measured_beta.PROJECTIONS
        for name, counts in budgets.items()
        for steps in counts
    ]
    assert (tmp_path / "figure.png").is_file()
    before = (tmp_path / "meta.json").read_bytes()
    call(measured_beta, monkeypatch, *options)
    assert (tmp_path / "meta.json").read_bytes() == before


def test_an_exact_gradient_is_that_of_all_images(tmp_path, monkeypatch):
    options = ["--data", "digits", "--lrs", 0.1, 10, "--steps", 40, "--out", tmp_path]
    call(exact_gradient, monkeypatch, *options)
    (result,) = experiment.load(tmp_path).values()
    assert result.final("test_accuracy").shape == (2, 1)
    assert result.info["context"]["batch"] > 1_000
    assert (result.final("test_accuracy") > 0.5).all()


@pytest.mark.slow
def test_the_comparison_on_networks_runs_every_pair_of_momenta(tmp_path, monkeypatch, capsys):
    options = ["--data", "digits", "--seeds", 1, "--lrs", 0.1, "--steps", 3, "--out", tmp_path]
    call(measured_networks, monkeypatch, *options)
    results = experiment.load(tmp_path)
    assert list(results) == list(measured_networks.MOMENTA)
    assert all(np.isfinite(result.metrics["test_loss"]).all() for result in results.values())
    assert len({float(result.final("test_loss")[0, 0]) for result in results.values()}) > 3
    assert capsys.readouterr().out.count("γ") == len(results)


def few_images(monkeypatch):
    """Lets the measurements on the digits see two batches of them."""
    parts = digits.load()
    few = [{name: array[:128] for name, array in part.items()} for part in parts]
    monkeypatch.setattr(digits, "load", lambda: few)


@pytest.mark.slow
def test_the_small_cnn_learns_in_both_precisions(monkeypatch):
    few_images(monkeypatch)
    losses = {}
    for precision in ("float32", "bf16 params, arithmetic and state"):
        train = mixed_precision.make_train(mu2_optax.fixed_momentum(), precision, epochs=4)
        losses[precision] = train(0.3, jax.random.key(0))["training_loss"]
    assert all(loss < 2.1 for loss in losses.values()), losses  # a guess among ten has 2.3
    assert len(set(losses.values())) == 2


def test_the_state_takes_the_bytes_that_it_says():
    make = mixed_precision.OPTIMIZERS["mu2_sgd"]
    assert mixed_precision.bytes_per_parameter(make, jnp.float32, None) == 12
    assert mixed_precision.bytes_per_parameter(make, jnp.bfloat16, jnp.bfloat16) == 6


@pytest.mark.slow
def test_recalibration_helps_where_the_statistics_lag(monkeypatch):
    few_images(monkeypatch)
    gains = {}
    for momentum in (0.99, 0.5):
        train = batchnorm_at_the_average.make_train(momentum, epochs=(1, 8))
        found = train(0.3, jax.random.key(0))
        running, recalibrated = map(np.asarray, found.values())
        assert running.shape == recalibrated.shape == (2,)
        gains[momentum] = recalibrated[1] - running[1]
    assert gains[0.99] > 0.2
    assert abs(gains[0.5]) < 0.1


@pytest.mark.slow
def test_the_forgotten_average_is_measured_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    options = ("--tasks", "transformer", "--steps", 30, "--seeds", 2)
    call(forgotten_average, monkeypatch, *options)
    table = tables.forgotten_table(tmp_path / "forgotten_average" / "results.csv")
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[1] for row in rows] == ["3", "9", "30"]
    assert all(0 <= float(value) <= 1 for row in rows for value in row[2:4])


@pytest.mark.slow
def test_clipping_is_compared_on_losses_that_can_explode(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    call(clipping, monkeypatch, "--steps", 40, "--seeds", 2)
    table = tables.clipping_table(tmp_path / "clipping" / "results.csv")
    head, _, *rows = (line.split(" | ") for line in table.splitlines())
    assert head[2:] == ["not clipped", "norm 10", "norm 1", "norm 0.1 |"]
    assert len(rows) == 4
    for row in rows:
        for mean, worst in (cell.strip(" |)").split(" (") for cell in row[2:]):
            assert float(mean) <= float(worst)


TINY = {
    "dependent_batches": {"STEPS": 30, "SEEDS": 2, "TIMES": (10, 30)},
    "dynamic_batches": {"STEPS": (32, 64), "SEEDS": 2},
    "errors": {"STEPS": 8192, "SEEDS": 1},
    "extra_hint": {"STEPS": 64, "SEEDS": 2, "TIMES": (16, 64)},
    "no_learning_rate": {
        "RATES": np.array([0.1, 1.0]),
        "PASSES": 1,
        "SEEDS": 2,
        "RADII": (1.0, 2.0),
    },
    "operators": {"STEPS": 64, "SEEDS": 2},
    "rates": {"STEPS": (8, 16, 32, 64), "SEEDS": 2},
    "stability": {"SEEDS": 4},
    "stopping": {"MAX_STEPS": 50, "SEEDS": 2},
}


NAMING_STEPS = ("dependent_batches", "extra_hint", "operators")  # in their columns


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_each_measurement_of_the_theory_runs(name, tmp_path, monkeypatch):
    module = importlib.import_module(f"benchmarks.theory.{name}")
    committed = report.RESULTS
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for constant, value in TINY[name].items():
        monkeypatch.setattr(module, constant, value)
    wide = jax.config.jax_enable_x64
    try:
        module.main()
    finally:
        jax.config.update("jax_enable_x64", wide)
    written = sorted(tmp_path.iterdir())
    assert any(path.suffix == ".csv" for path in written)
    for path in written:  # the same pictures, and tables with the same columns, as the committed
        assert (committed / path.name).is_file()
        if path.suffix == ".csv":
            own, known = (
                file.read_text().splitlines()[0] for file in (path, committed / path.name)
            )
            assert own == known or name in NAMING_STEPS


def test_the_command_in_a_result_hides_the_folder_of_the_data():
    options = ["--data-dir", "/home/me/data", "--seeds", "1"]
    shown = files.command_line("benchmarks.robustness", options)
    assert shown == "python -m benchmarks.robustness --data-dir DATA --seeds 1"
    assert "/home" not in files.command_line("benchmarks.convex", ["--data-dir=/home/me/data"])


def test_projected_schedule_free_is_schedule_free_with_its_iterate_in_the_set():
    own = OPTIMIZERS["schedule_free_sgd"]
    far = mu2_optax.onto_l2_ball(1e6)
    free = own.make(0.1, Setting())
    wide = own.make(0.1, Setting(projection=far))
    near = own.make(10.0, Setting(projection=mu2_optax.onto_l2_ball(0.5)))
    params = [jnp.array([0.3, -0.4])] * 3
    states = [tx.init(params[0]) for tx in (free, wide, near)]
    for t in range(20):
        for i, tx in enumerate((free, wide, near)):
            grads = params[i] - jnp.array([jnp.sin(t), 2.0])
            updates, states[i] = tx.update(grads, states[i], params[i], grad_fn=None, batch=None)
            params[i] = optax.apply_updates(params[i], updates)
        x = own.evaluate(states[2], params[2])
        assert float(jnp.linalg.norm(states[2].z)) <= 0.5 + 1e-5
        assert float(jnp.linalg.norm(x)) <= 0.5 + 1e-4
    np.testing.assert_allclose(params[0], params[1], atol=1e-5)


@pytest.mark.slow
def test_the_pictures_of_the_idea_show_what_their_page_says():
    def error(name):
        found = idea.run(name, steps=400, seeds=40)
        return ((found.d - idea.exact_gradient(found.x)) ** 2).sum(-1).mean(0)

    errors = {name: error(name) for name in idea.OPTIMIZERS}
    both = errors["μ²-SGD"]
    assert all(both[-1] < 0.05 * errors[name][-1] for name in errors if name != "μ²-SGD")
    # 1/t over a factor of 20 in t, with the noise of 40 seeds
    assert 10 < both[19] / both[-1] < 40

    def excess(name, rate):
        return idea.excess(idea.run(name, 400, 40, rate).x[:, -1]).mean()

    far, best = excess("μ²-SGD", 1e4), excess("μ²-SGD", 0.1)
    assert 3 * best < far < 10 * best
    assert excess("SGD", 1e4) > 100 * excess("SGD", 10**-1.5)
    assert far < 0.1 * excess("SGD", 1e4)
    assert far < excess("averaging alone", 1e4) / 3
    assert excess("correction alone", 0.1) < excess("μ²-SGD", 0.1)  # as the page admits
    assert excess("SGD", 0.001) < excess("μ²-SGD", 0.001)


@pytest.mark.slow
def test_the_pictures_of_the_idea_are_drawn(tmp_path, monkeypatch):
    run = idea.run
    few = lambda name, steps, seeds, *rate: run(name, steps, min(seeds, 2), *rate)
    monkeypatch.setattr(idea, "run", few)
    call(idea, monkeypatch, "--out", tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(idea.PICTURES)
