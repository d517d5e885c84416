"""Each benchmark runs from end to end on tiny data, and what decides published numbers is right."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import call
from tiny_data import cifar_files, write

import mu2_optax
from benchmarks import (
    calibration,
    cifar10,
    clipping,
    costs,
    decay,
    experiment,
    files,
    growth,
    idea,
    image_tasks,
    lean,
    mixed_precision,
    robustness_measures,
    scaling,
    step_cost,
    studies,
    tables,
    timing,
)
from benchmarks.theory import report

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SWEPT = ("--data", "digits", "--seeds", 2, "--lrs", 0.1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.STUDIES)
def test_studies_run_their_cases_and_are_not_run_again(name, tmp_path, monkeypatch):
    steps = 14 if name == "convex" else 9
    compared = studies.STUDIES[name].optimizers
    chosen = ("mu2_sgd", "mu2_sgd_part_8", "sgd", "schedule_free_sgd")
    some = [optimizer for optimizer in compared if optimizer in chosen] or compared[:2]
    options = (name, *SWEPT, "--steps", steps, "--out", tmp_path, "--optimizers", *some)
    call(studies, monkeypatch, *options)
    results = experiment.load(tmp_path)
    contexts = [result.info["context"] for result in results.values()]
    assert {context["optimizer"] for context in contexts} == set(some)
    assert all(result.shape == (2, 2) for result in results.values())
    if "evaluations" in studies.STUDIES[name].budgets:
        cost = {c["steps"] * c["gradients_per_step"] for c in contexts}
        assert cost <= {8.0, 9.0, 18.0}  # 4 steps of two gradients, 8 of one and an eighth, 9
    before = (tmp_path / "runs.json").read_bytes()
    monkeypatch.setattr(experiment, "sweep", None)
    call(studies, monkeypatch, *options)
    assert (tmp_path / "runs.json").read_bytes() == before
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert ("figure.png" in drawn) == (studies.STUDIES[name].panels is not None)


def test_experiment_stops_in_time_and_refuses_another_setting(tmp_path, monkeypatch):
    options = ("exact_gradient", *SWEPT, "--steps", 40, "--out", tmp_path)
    call(studies, monkeypatch, *options, "--minutes", 1e-9)
    assert experiment.load(tmp_path) == {}
    call(studies, monkeypatch, *options)
    (result,) = experiment.load(tmp_path).values()
    assert (result.final("test_accuracy") > 0.5).all()
    with pytest.raises(SystemExit, match="choose another folder with --out"):
        call(studies, monkeypatch, "convex", *options[1:])


@pytest.mark.slow
def test_cifar10_runs_on_tiny_data(tmp_path, monkeypatch):
    write(tmp_path / "data", cifar_files(records=8))
    options = ["--data-dir", tmp_path / "data", "--width", 2, "--depth", 10, "--batch", 8]
    options += ["--steps", 2, "--seeds", 1, "--lrs", 0.1, "--out", tmp_path / "out"]
    call(cifar10, monkeypatch, *options, "--optimizers", "mu2_sgd", "schedule_free_sgd")
    results = experiment.load(tmp_path / "out")
    assert {result.label for result in results.values()} == {"μ²-SGD", "schedule-free SGD"}
    assert str(tmp_path / "data") not in (tmp_path / "out" / "runs.json").read_text()


def test_cifar10_shows_every_image_once_an_epoch_in_an_order_of_the_seed():
    batches = list(cifar10.shuffled(images=10, batch=4, seed=3, count=5))
    first, second = np.split(np.concatenate(batches), 2)
    assert sorted(first) == sorted(second) == list(range(10))
    longer = list(cifar10.shuffled(images=10, batch=4, seed=3, count=8))
    np.testing.assert_array_equal(longer[:5], batches)  # more steps go on with the same batches
    for seed in (0, 3, 2**31 + 5):
        assert experiment.seed_of(jax.random.key(np.uint32(seed))) == seed


def test_measures_are_those_done_by_hand():
    values = np.array([[0.5, 0.7], [0.9, 0.9], [0.9, np.nan]])  # rates, seeds
    assert robustness_measures.best_accuracy(values) == (0.9, 0.9, 0.9)
    values[1], values[2] = (0.8, 1.0), np.nan
    assert robustness_measures.best_accuracy(values) == (0.9, 0.8, 1.0)


def test_tables_of_the_committed_results_are_on_the_pages(monkeypatch):
    call(tables, monkeypatch, "--check")
    with pytest.raises(ValueError, match="no such table"):
        tables.render("<!-- table README.md nothing -->\n<!-- end of table -->")


@pytest.mark.slow
def test_cnn_task_in_patches_is_the_cnn():
    data = image_tasks.made_up(30)
    task = image_tasks.cnn_task(data, batch=6)
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


@pytest.mark.slow
def test_calibration_writes_both_errors(tmp_path, monkeypatch):
    settings = ["logistic, radius 4, rate 1", "least squares, rate 0.01", "MLP, rate 0.1"]
    options = ["--data", "digits", "--seeds", 2, "--steps", 30, "--out", tmp_path]
    call(calibration, monkeypatch, *options, "--settings", *settings)
    assert (tmp_path / "figure.png").is_file()
    rows = files.read_rows(tmp_path / "results.csv")
    assert [row["step"] for row in rows] == ["3", "10", "30"] * len(settings)
    for row in rows:  # two seeds of thirty steps: that both are the same thing, and no more
        assert 0.1 < float(row["ratio"]) < 10


@pytest.mark.slow
def test_mixed_precision_study_learns_in_both_precisions(monkeypatch):
    few = [{name: array[:128] for name, array in part.items()} for part in mixed_precision.digits()]
    monkeypatch.setattr(mixed_precision, "digits", lambda: few)
    for precision in ("float32", "bf16 params, arithmetic and state"):
        found = mixed_precision.in_precision("fixed_momentum()", precision, seed=0, epochs=4)
        assert found["training_loss"] < 2.1  # a guess among ten has 2.3


@pytest.mark.slow
def test_clipping_is_measured_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    call(clipping, monkeypatch, "--steps", 40, "--seeds", 2)
    head, _, *rows = tables.clipping_table(tmp_path / "clipping" / "results.csv").splitlines()
    assert head.split(" | ")[2:] == ["not clipped", "norm 10", "norm 1", "norm 0.1 |"]
    assert len(rows) == 4


@pytest.mark.slow
def test_decay_is_measured_beside_adamw_with_the_best_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(decay, "RESULTS", tmp_path)
    call(decay, monkeypatch, "--tasks", "factorization", "--steps", 100, "--seeds", 1)
    (row,) = files.read_rows(tmp_path / "decay" / "results.csv")
    assert float(row["its decay"]) in decay.THEIRS
    assert all(np.isfinite(float(row[name])) for name in list(row)[2:])


@pytest.mark.slow
def test_growth_is_measured_beside_adam(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "RESULTS", tmp_path)
    call(growth, monkeypatch, "--steps", 100, "--seeds", 1)
    rows = files.read_rows(tmp_path / "growth" / "results.csv")
    assert len(rows) == len(growth.TASKS) * len(growth.OPTIMIZERS)
    assert all(float(row["error_at_the_average"]) > 0 for row in rows)


def test_the_values_of_the_decision_process_are_those_of_its_optimal_policy():
    data = growth.load_decisions(0.9)
    best = data["values"].max(1)
    wanted = data["rewards"][:, None] + 0.9 * data["chances"] @ best
    np.testing.assert_allclose(data["values"], wanted, rtol=1e-4)
    np.testing.assert_allclose(data["chances"].sum(-1), 1, rtol=1e-5)


@pytest.mark.slow
def test_lean_is_as_far_from_the_truth_as_the_stored_point(tmp_path, monkeypatch):
    monkeypatch.setattr(lean, "RESULTS", tmp_path)
    monkeypatch.setattr(lean, "STEPS", 100)
    monkeypatch.setattr(lean, "TIMES", (10, 100))
    call(lean, monkeypatch)
    rows = files.read_rows(tmp_path / "lean" / "results.csv")
    assert all(float(r["x_away_at_100"]) < 1e-3 for r in rows if r["dtype"] == "float32")


TINY = {
    "dependent_batches": {"STEPS": 30, "SEEDS": 2, "TIMES": (10, 30)},
    "errors": {"STEPS": 8192, "SEEDS": 1},
    "extra_hint": {"STEPS": 64, "SEEDS": 2, "TIMES": (16, 64)},
    "no_learning_rate": {"RATES": np.array([0.1, 1.0]), "PASSES": 1, "SEEDS": 2},
    "part": {"STEPS": 64, "SEEDS": 2, "TIMES": (16, 64)},
    "rates": {"STEPS": (8, 16, 32, 64), "SEEDS": 2},
    "stability": {"SEEDS": 4},
    "stopping": {"MAX_STEPS": 50, "SEEDS": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_theory_writes_the_tables_and_pictures_that_are_committed(name, tmp_path, monkeypatch):
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
    written = {path.name for path in tmp_path.iterdir()}
    assert written
    assert written <= {path.name for path in committed.iterdir()}


@pytest.mark.slow
def test_idea_shows_what_its_page_says_and_is_drawn(tmp_path, monkeypatch):
    def error(name):
        found = idea.run(name, steps=400, seeds=40)
        return ((found.d - idea.exact_gradient(found.x)) ** 2).sum(-1).mean(0)

    errors = {name: error(name) for name in idea.OPTIMIZERS}
    both = errors["μ²-SGD"]
    assert all(both[-1] < 0.05 * errors[name][-1] for name in errors if name != "μ²-SGD")
    # 1/t over a factor of 20 in t, with the noise of 40 seeds
    assert 10 < both[19] / both[-1] < 40
    excess = lambda name, rate: idea.excess(idea.run(name, 400, 40, rate).x[:, -1]).mean()
    assert 3 * excess("μ²-SGD", 0.1) < excess("μ²-SGD", 1e4) < 10 * excess("μ²-SGD", 0.1)
    assert excess("SGD", 1e4) > 100 * excess("SGD", 10**-1.5)
    assert excess("correction alone", 0.1) < excess("μ²-SGD", 0.1)  # as the page admits
    run = idea.run
    few = lambda name, steps, seeds, *rate: run(name, steps, min(seeds, 2), *rate)
    monkeypatch.setattr(idea, "run", few)
    call(idea, monkeypatch, "--out", tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(idea.PICTURES)


@pytest.mark.parametrize(
    ("tx", "gradients", "share"),
    [
        # 20 leaves: a copy of one of them would be a twentieth of the params.
        pytest.param(mu2_optax.mu2_sgd(0.1), 2, 0.03, id="mu2_sgd"),
        pytest.param(mu2_optax.storm(0.1, 0.9), 2, 0.03, id="storm"),
        pytest.param(mu2_optax.mu2_auto(), 1, 0.2, id="mu2_auto"),  # and samples of all leaves
    ],
)
def test_step_cost_donated_step_copies_no_params(tx, gradients, share):
    loss, params, batch = step_cost.tree(count=2_000_000, leaves=20)
    optimizer = step_cost.Optimizer(tx, gradients)
    step = jax.jit(step_cost.make_step(loss, optimizer), donate_argnums=(0, 1))
    memory = step.lower(params, tx.init(params), batch).compile().memory_analysis()
    assert memory.temp_size_in_bytes < share * step_cost.size(params)


def test_timing_takes_turns_and_the_first_round_does_not_count():
    calls = []
    ways = {name: lambda name=name: float(len(calls.append(name) or calls)) for name in "ab"}
    seconds = timing.in_turn(ways, rounds=2)
    assert calls == list("ababab")
    np.testing.assert_array_equal(seconds["a"], [3, 5])
    assert timing.spread(np.array([1.0, 2, 3, 4, 5])) == (3, 2, 4)


@pytest.mark.slow
def test_step_cost_and_scaling_are_measured_and_drawn(tmp_path, monkeypatch):
    tree = step_cost.Model(lambda: step_cost.tree(20, 2), 1)
    tiny = {"logistic regression": step_cost.MODELS["logistic regression"]._replace(steps=1)}
    monkeypatch.setattr(step_cost, "MODELS", tiny | {"10⁸ params in 200 leaves": tree})
    names = ("SGD", "Adam", "mu2_sgd", "mu2_sgd, part 1/8", "mu2_sgd, lean", "mu2_auto")
    for dtype in ("bfloat16", "float32"):  # the second run keeps the rows of the first
        options = ["--rounds", 1, "--out", tmp_path / "step_cost", "--dtypes", dtype]
        call(step_cost, monkeypatch, *options, "--optimizers", *names)
    rows = files.read_rows(tmp_path / "step_cost" / "results.csv")
    assert len(rows) == 2 * 2 * len(names)
    state = {
        (row["dtype"], row["optimizer"]): float(row["state"]) for row in rows[: 2 * len(names)]
    }
    assert state["float32", "mu2_sgd"] == pytest.approx(3, abs=0.1)
    assert state["float32", "mu2_sgd, lean"] == pytest.approx(2, abs=0.3)
    small = {"PARAMS": (40, 80), "TIMES": (1, 1000), "LEAVES": (1, 2), "LANES": (1, 2)}
    for constant, value in small.items():
        monkeypatch.setattr(scaling, constant, value)
    for more in ((), ("--studies", "lanes")):
        call(scaling, monkeypatch, "--rounds", 1, "--out", tmp_path / "scaling", *more)
    rows = files.read_rows(tmp_path / "scaling" / "results.csv")
    assert len(rows) == 2 * (3 * len(scaling.NAMES))  # SGD has no t, and the lanes
    costs.main(tmp_path)
    assert len(list(tmp_path.rglob("figure.png"))) == 2
