"""The self-tuning benchmark: tasks, peers, what is chosen by what, and how it is judged."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from benchmarks.self_tuning.peers import PEERS
from benchmarks.self_tuning.records import Cell, Records

from benchmarks import recipes, tables
from benchmarks.schedule_free_plus import schedule_free_plus
from benchmarks.self_tuning import __main__ as command
from benchmarks.self_tuning import (
    analysis,
    frozen,
    goals,
    peers,
    pictures,
    records,
    roles,
    rows,
    runner,
    sentences,
)
from benchmarks.self_tuning.task import CONFIRMATION, DEVELOPMENT, FRESH, Functions, Task, split
from benchmarks.self_tuning.tasks import TASKS, VARIANTS, finetuning, images
from mu2_optax._optimizers import auto
from mu2_optax.sweep import Data

pytestmark = pytest.mark.usefixtures("compiled_quickly")

OTHERS = [name for name in PEERS if name not in peers.OURS]
OWN = [name for name in TASKS if name not in VARIANTS]  # variants are longer, or in other batches
OF_EACH_KIND = list({TASKS[name].kind: name for name in OWN}.values())


def quadratic(data):
    """Numbers whose mean is looked for."""
    loss = lambda params, batch: ((params["w"] - batch) ** 2).mean()
    return Functions(
        init=lambda key: {"w": jnp.full((2, 3), 2.0), "b": jnp.ones(3)},
        draw=lambda key, steps: jax.random.randint(key, (steps, 4), 0, len(data["train"])),
        batch=lambda rows: data["train"][rows].mean(0),
        loss=lambda params, batch: loss(params, batch) + (params["b"] ** 2).mean(),
        measure=lambda params, rows, part: loss(params, data[part].mean(0)),
    )


def numbers(data_dir):
    rng = np.random.default_rng(0)
    draw = lambda count: rng.standard_normal((count, 2, 3)).astype(np.float32)
    return {"train": draw(32), "validation": draw(8), "test": draw(8)}


TINY = Task("numbers", DEVELOPMENT, "loss", 40, numbers, quadratic)


@pytest.fixture
def tiny(monkeypatch):
    """The only task there is."""
    for name in list(TASKS):
        monkeypatch.delitem(TASKS, name)
    monkeypatch.setitem(TASKS, "tiny", TINY)
    monkeypatch.setattr(goals, "VARIANTS", {})
    monkeypatch.setattr(rows, "VARIANTS", {})
    monkeypatch.setattr(pictures, "VARIANTS", {})
    return TINY


@pytest.fixture
def small_images(monkeypatch):
    """Noise in the place of images."""

    def load(name, data_dir=None):
        shape = {"cifar10": (32, 32, 3), "digits": (8, 8)}.get(name, (28, 28))
        rng = np.random.default_rng(0)
        sizes = (2700, 3200)
        images, labels = (
            [rng.standard_normal((n, *shape)).astype(np.float32) for n in sizes],
            [rng.integers(0, 10, n).astype(np.int32) for n in sizes],
        )
        return Data(images[0], labels[0], images[1], labels[1])

    monkeypatch.setattr(images.datasets, "load", load)
    monkeypatch.setattr(finetuning, "BEFORE", 300)


def test_every_kind_has_a_task_on_either_side():
    development, confirmation = map(roles.counted, (DEVELOPMENT, CONFIRMATION))
    kinds = [{task.kind for task in side.values()} for side in (development, confirmation)]
    assert len(development) + len(confirmation) >= 18
    assert len(kinds[0]) >= 12
    assert kinds[0] == kinds[1]
    assert all(task.side == DEVELOPMENT for task in VARIANTS.values())


def test_fresh_tasks_are_of_kinds_that_no_other_task_is_of():
    kinds = [task.kind for task in roles.counted(FRESH).values()]
    others = {task.kind for task in TASKS.values() if task.side != FRESH}
    assert len(set(kinds)) == len(kinds) > 5
    assert not others & set(kinds)


def slow_but_one_of_a_kind(name):
    marks = () if name in OF_EACH_KIND else pytest.mark.slow
    return pytest.param(name, id=name, marks=marks)


@pytest.mark.parametrize("name", [slow_but_one_of_a_kind(name) for name in OWN])
def test_every_task_can_be_trained_and_measured(name, small_images):
    task = TASKS[name]
    assert task.steps % runner.POINTS == 0
    data = jax.tree.map(jnp.asarray, task.load(None))
    train = runner.make_train(task, lambda rate, steps: optax.adam(rate))
    found = jax.eval_shape(train, data, 1e-3, 0)
    assert found["curve"].shape == (runner.POINTS,)
    assert found["validation"].shape == found["test"].shape == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_every_kind_of_task_gives_finite_metrics(name, small_images):
    found = runner.run_once(TASKS[name], optax.adam(1e-3), steps=20)
    assert np.isfinite([*found["curve"], found["validation"], found["test"]]).all()


@pytest.mark.parametrize("name", OTHERS)
def test_every_peer_goes_downhill_untouched(name):
    peer = PEERS[name]
    assert peer.untouched in peer.rates
    assert len(peer.rates) >= 6
    made = []
    make = lambda rate, steps: made.append(rate) or peer.make(rate, steps)
    train = runner.make_train(TINY, make, peer.evaluate)
    data = runner.load(TINY)
    found = runner.as_numbers(train(data, peer.untouched, 0))
    start = quadratic(data).measure(quadratic(data).init(None), None, "validation")
    assert found["validation"] <= float(start) + 1e-6
    for rate, seed in ((peer.rates[0], 1), (peer.rates[-1], 2)):
        train(data, rate, seed)
    assert len(made) == 1  # rates and seeds compile nothing anew


def test_muon_leaves_embeddings_and_last_layers_to_adamw():
    matrix, kernel = jnp.ones((4, 4)), jnp.ones((3, 3, 2, 4))
    params = {"net": [{"w": matrix, "b": jnp.ones(4)}] * 2, "characters": matrix, "conv": kernel}
    marks = recipes.matrices_inside(params)
    assert marks["net"][0]["w"] is not None
    assert marks["conv"].reduction_axis == (0, 1, 2)
    assert marks["net"][0]["b"] is marks["net"][1]["w"] is marks["characters"] is None


def test_schedules_end_at_zero_and_peak_at_the_rate():
    for schedule in (recipes.cosine(0.5, 100), recipes.stable_then_decay(0.5, 100)):
        rates = np.array([schedule(count) for count in range(100)])
        assert rates.max() == pytest.approx(0.5)
        assert 0 < rates[0] <= 0.11
        assert rates[-1] <= 0.03


@pytest.mark.parametrize("warmup", [0, 3])
def test_schedule_free_plus_is_its_formulas(warmup):
    rng = np.random.default_rng(0)
    A, start = rng.standard_normal((6, 4)), rng.standard_normal(4)
    value = lambda y: 0.5 * np.mean((A @ y) ** 2)
    gradient = lambda y: A.T @ (A @ y) / 6
    beta, b1, b2, decay, factor = 0.9, 0.9, 0.95, 0.3, 0.7

    x, y, z = start.copy(), start.copy(), start.copy()
    m, v, largest, weights = np.zeros(4), np.zeros(4), 1e-8, 0.0
    tx = schedule_free_plus(factor, warmup, weight_decay=decay)
    params = jnp.asarray(start, jnp.float32)
    state = tx.init(params)
    for k in range(12):
        f, g = value(y), gradient(y)
        warm = min(1, (k + 1) / warmup) if warmup else 1
        rate = max(0, f + beta * g @ (z - x)) / (np.sqrt(np.pi / 2) * np.abs(g).sum())
        rate *= factor * warm
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        direction = (m / (1 - b1 ** (k + 1))) / (np.sqrt(v / (1 - b2 ** (k + 1))) + 1e-8)
        z = z - rate**2 * decay * y - rate * direction
        largest = max(largest, rate)
        if k < warmup:
            c = 1.0
        else:
            weights += largest**2
            c = largest**2 / weights
        x = (1 - c) * x + c * z
        y = beta * x + (1 - beta) * z

        loss = lambda p: 0.5 * jnp.mean((jnp.asarray(A, jnp.float32) @ p) ** 2)
        found, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params, value=found)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params, y, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(state.x, x, rtol=2e-4, atol=2e-5)


def test_the_average_of_dog_is_the_polynomial_one():
    tx = recipes.averaged(optax.sgd(1.0), power=8.0)
    params, average = jnp.zeros(1), 0.0
    state = tx.init(params)
    for t in range(1, 6):
        updates, state = tx.update(-jnp.ones(1), state, params)
        params = optax.apply_updates(params, updates)
        average = (1 - 9 / (t + 8)) * average + 9 / (t + 8) * float(params[0])
        np.testing.assert_allclose(state.average, average, rtol=1e-6)


def test_the_profile_and_its_integral_are_those_done_by_hand():
    times = analysis.ratios({"a": np.array([10.0, 40, np.inf]), "b": np.array([20.0, 20, np.inf])})
    np.testing.assert_allclose(times["a"], [1, 2, np.inf])  # nobody reaches the last target
    assert analysis.profile(times["b"], 1.5) == pytest.approx(1 / 3)
    assert analysis.profile(times["b"], 2) == pytest.approx(2 / 3)
    # One task from τ = 1, another from 2 on, the third never: (3 + 2) / (3 · 3).
    assert analysis.profile_scores(times)["a"] == pytest.approx(5 / 9)


def test_a_target_is_reached_at_the_first_point_that_is_good_enough():
    assert analysis.first_reached(TINY, [3.0, 1.0, 2.0, 0.5], 1.5) == 0.5
    assert analysis.first_reached(TINY, [3.0, math.nan], 1.5) == math.inf
    assert analysis.first_reached(TINY._replace(metric="accuracy"), [0.1, 0.9], 0.9) == 1.0


def test_behind_counts_losses_relatively_and_accuracies_fourfold():
    assert analysis.behind(TINY, 1.1, 1.0) == pytest.approx(0.1)
    assert analysis.behind(TINY._replace(metric="accuracy"), 0.895, 0.9) == pytest.approx(0.02)
    assert analysis.behind(TINY._replace(metric="return"), -110.0, -100.0) == pytest.approx(0.1)
    assert analysis.behind(TINY, math.nan, 1.0) == math.inf


def made_up(validation, test=0.0):
    return {"curve": [validation] * 20, "validation": validation, "test": test, "seconds": 1.0}


def test_records_keep_nan_replace_a_run_and_add_to_what_is_there(tmp_path):
    one, two = Records(tmp_path, "tiny"), Records(tmp_path, "tiny")
    one.add(Cell("adam", 0.1, 0), made_up(math.nan), {"commit": "a"})
    two.add(Cell("adam", 0.1, 1), made_up(2.0), {"commit": "b"})
    one.add(Cell("adam", 0.1, 1), made_up(3.0), {"commit": "a"})
    found = one.read()
    assert math.isnan(found[Cell("adam", 0.1, 0)]["validation"])
    assert found[Cell("adam", 0.1, 1)]["validation"] == 3.0
    assert [info["commit"] for info in one.info()] == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]
    json.loads(one.file.read_text(), parse_constant=pytest.fail)  # no NaN in the file
    two.drop("adam")
    assert not one.read()


def test_rates_are_chosen_by_validation_alone(tiny):
    runs = {
        "tiny": {
            Cell("adam", rate, 0): made_up(abs(rate - 1e-2), test=rate)
            for rate in PEERS["adam"].rates
        }
    }
    assert roles.tuned_rate(tiny, "adam", runs["tiny"]) == 1e-2
    assert roles.calibrated_rate("adam", runs) == 1e-2
    for run in runs["tiny"].values():
        run["test"] = math.nan  # the test metric may be anything
    assert roles.tuned_rate(tiny, "adam", runs["tiny"]) == 1e-2
    del runs["tiny"][Cell("adam", 1e-1, 0)]
    assert roles.calibrated_rate("adam", runs) is None  # the grid is not complete


def test_the_calibrated_rate_is_best_on_average_and_no_task_decides_alone(monkeypatch, tiny):
    monkeypatch.setitem(TASKS, "second", TINY)
    monkeypatch.setitem(TASKS, "third", TINY)
    rates = PEERS["adam"].rates
    runs = lambda best: {
        Cell("adam", rate, 0): made_up(0.1 if rate == best else math.nan if best == 0.1 else 0.15)
        for rate in rates
    }
    of = {"tiny": runs(1e-3), "second": runs(1e-3), "third": runs(0.1)}
    # log 1.5 = .41 on two tasks against at most 1 on the third, where all others diverged
    assert roles.calibrated_rate("adam", of) == 0.1
    of["third"] = runs(1e-2)
    assert roles.calibrated_rate("adam", of) == 1e-3


def test_no_row_is_in_two_splits():
    parts = split((np.arange(100),), 20, 30)
    rows = [set(parts[part][0].tolist()) for part in ("train", "validation", "test")]
    assert [len(part) for part in rows] == [50, 20, 30]
    assert len(set.union(*rows)) == 100


def test_the_test_split_changes_neither_params_nor_validation():
    data = numbers(None)
    train = runner.make_train(TINY, lambda rate, steps: optax.adam(rate))
    one, other = (train(data | {"test": data["test"] + add}, 1e-2, 0) for add in (0, 5))
    np.testing.assert_array_equal(one["curve"], other["curve"])
    assert one["test"] != other["test"]


def test_a_run_goes_on_where_it_stopped(tmp_path, tiny, monkeypatch, capsys):
    made = []
    make = runner.make_train
    monkeypatch.setattr(runner, "make_train", lambda *a: made.append(1) or make(*a))
    options = ["--peers", "adam", "adamw_cosine", "--out", str(tmp_path), "--seeds", "2"]
    args = command.arguments([*options, "--role", "untouched"])
    assert command.run(args)
    assert len(made) == 2
    assert len(Records(tmp_path, "tiny").read()) == 4
    made.clear()
    assert command.run(args)
    assert not made  # nothing was missing
    args = command.arguments([*options, "--role", "tuned", "calibrated", "--minutes", "1e-9"])
    assert not command.run(args)
    assert not made  # time was over
    args = command.arguments([*options, "--role", "tuned", "calibrated"])
    assert command.run(args)
    monkeypatch.setattr("sys.argv", ["x", "--report", "--out", str(tmp_path), "--seeds", "2"])
    command.main()
    assert "not known yet" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "tiny.json",
        "front.png",
        "beside.png",
        "profiles.png",
        "tasks.png",
        "factors.png",
    }
    results = analysis.Results(tmp_path, seeds=2)
    assert results.target("tiny") is not None
    scores = results.scores(roles.TUNED, ["tiny"])
    assert set(scores) == {"adam", "adamw_cosine"}
    assert max(scores.values()) == 1.0
    assert results.best_peer(roles.TUNED, "tiny") in scores
    assert results.best_tuned("tiny") is None  # the other strong peers were not run


def test_mu2_auto_is_locked_out_of_confirmation_until_frozen(capsys):
    with pytest.raises(SystemExit):
        command.arguments(["--task", "softmax_fashion", "--peers", "mu2_auto"])
    assert "--frozen" in capsys.readouterr().err
    assert not command.allowed("softmax_fashion", "mu2_auto", None)
    assert command.allowed("softmax_fashion", "adam", None)
    assert command.allowed("softmax_mnist", "mu2_auto", None)
    assert command.allowed("softmax_fashion", "mu2_auto", "abc")
    with pytest.raises(SystemExit):
        command.arguments(["--frozen", "no-such-commit"])
    assert "does not name the commit no-such-commit" in capsys.readouterr().err


def test_mu2_auto_gives_what_it_gave_when_it_was_frozen():
    changed = frozen.differences(frozen.read())
    assert not changed, "\n".join([*changed, frozen.REMEDY])


def test_a_changed_constant_of_mu2_auto_is_noticed(monkeypatch):
    monkeypatch.setattr(frozen, "CHOICES", {"mu2_auto": False})
    monkeypatch.setattr(auto, "_AHEAD", 1.01 * auto._AHEAD)
    assert frozen.differences(frozen.read())


def test_what_made_a_run_is_kept():
    info = records.made_by("abc")
    assert info["frozen"] == "abc"
    assert {"command", "commit", "machine", "versions"} <= set(info)


@pytest.fixture
def two_sides(tmp_path, tiny, monkeypatch):
    """A task on either side, and a function that makes up the runs of an optimizer."""
    monkeypatch.setitem(TASKS, "other", TINY._replace(side=CONFIRMATION, metric="accuracy"))

    def run(name, peer, value, *, rates=None, test=None, frozen=None):
        """All rates, or some, with two seeds; the untouched rate gives ``value``, the others less.

        The test metric is ``test`` ± .01, by default around ``value``.
        """
        sign = 1 if TASKS[name].higher_is_better else -1
        middle = value if test is None else test
        info = records.made_by(frozen)
        for rate in rates or PEERS[peer].rates:
            worse = 0.0 if rate == PEERS[peer].untouched else 0.2
            for seed, by in enumerate((-0.01, 0.01)):
                found = made_up(value - sign * worse, middle - sign * worse + by)
                Records(tmp_path, name).add(Cell(peer, rate, seed), found, info)

    return tmp_path, run


def results_of(folder):
    return analysis.Results(folder, seeds=2)


def test_a_task_is_compared_once_the_strongest_peers_are_tuned(two_sides):
    folder, run = two_sides
    run("tiny", "mu2_auto", 1.0)
    *first, last = roles.RETUNED
    for peer in first:
        run("tiny", peer, 0.8)
    run("tiny", last, 0.5, rates=[PEERS[last].untouched])  # untouched, and therefore not tuned
    results = results_of(folder)
    assert not results.compared(TASKS)
    assert goals.margins(results, TASKS) == {}
    assert "not run yet" in rows.markdown(*rows.front_rows(results, DEVELOPMENT))
    assert "nothing is known" in sentences.answer(results, DEVELOPMENT)
    run("tiny", last, 0.5)
    results = results_of(folder)
    assert results.compared(TASKS) == ["tiny"]
    assert "the worst is `tiny` (−100.0 %)." in sentences.answer(results, DEVELOPMENT)
    assert goals.margins(results, TASKS)["tiny"] == pytest.approx((1.0, 1.02))
    for marks in (pictures.FRONT, pictures.BESIDE):
        points = pictures.behind_tuned(results, DEVELOPMENT, marks)["tiny"]
        by = {label: value for (_, _, label, *_), value in zip(marks, points, strict=True)}
        assert points[-1] == pytest.approx(1.0)  # ours
        assert by.get("mu2_auto(spectral=True)") is None  # not run
        assert pictures.behind_tuned(results, CONFIRMATION, marks) == {}
    assert by["AdamW with cosine, untouched"] == pytest.approx(0.6)


def test_the_front_table_has_the_peer_that_validates_best_and_says_what_was_not_run(two_sides):
    folder, run = two_sides
    run("other", "mu2_auto", 0.9, frozen="abc")
    for number, peer in enumerate(roles.RETUNED):
        run("other", peer, 0.8 - 0.01 * number)
    run("other", "adam", 0.85, test=0.7)  # validates best, and tests worst
    run("other", "dog", 0.95, rates=[PEERS["dog"].untouched])
    results = results_of(folder)
    (row,) = rows.front_rows(results, CONFIRMATION)[1]
    assert row[:5] == [
        "numbers, accuracy",
        ".9000 ± .0141",
        "not run",
        "DoG, averaged .9500 ± .0141",
        "−.0500",
    ]
    assert row[5:7] == ["not run", ""]  # calibration needs the development task
    assert row[7:] == ["Adam .7000 ± .0141", "+.2000"]
    assert sentences.coverage(results, CONFIRMATION) == (
        "Run: 1 of the 1 confirmation tasks; of 16 peers, untouched 8, calibrated 0, "
        "tuned 7 on each, with 2 seeds.\n"
    )
    assert sentences.answer(results, CONFIRMATION) == (
        "On 1 confirmation tasks, `mu2_auto()` as it comes is ahead of the best untouched peer on "
        "0 of 1, the best tuned peer on 1 of 1. It is within 2 % of the best tuned peer on 1 and "
        "within 10 % on 1; it is behind on none.\n"
    )
    assert "nothing is known yet" in sentences.answer(results, CONFIRMATION, peers.SPECTRAL)
    assert "frozen by the commit `abc`" in sentences.made(results)


def test_runs_are_counted_and_the_lock_is_said(two_sides):
    folder, run = two_sides
    assert sentences.made(results_of(folder)) == "Nothing has been run.\n"
    run("tiny", "adam", 1.0)
    assert sentences.made(results_of(folder)).startswith("12 runs, 0.0 hours of one core (")
    assert "not run there yet" in sentences.made(results_of(folder))


def test_the_time_of_orthogonal_steps_is_said_beside_that_of_the_others(two_sides):
    folder, run = two_sides
    assert "not known yet" in sentences.spectral_time(results_of(folder))
    run("tiny", peers.AUTO, 1.0)
    run("tiny", peers.SPECTRAL, 1.0)
    said = sentences.spectral_time(results_of(folder))
    assert "took 1.0 times as long on the median task (" in said


def test_figures_have_the_digits_of_their_metric():
    figure = lambda *values: analysis.Figure(float(np.mean(values)), values)
    accuracy = TINY._replace(metric="accuracy")
    assert rows.shown(figure(0.9, 0.92), accuracy) == ".9100 ± .0141"
    assert rows.shown(figure(120.4, 121.4), TINY) == "120.9 ± 0.7"
    assert rows.shown(figure(0.05, 0.052), TINY) == "0.05100 ± 0.00141"
    assert rows.shown(figure(2e-5, 3e-5), TINY) == "2.5e-05 ± 7e-06"
    assert rows.shown(figure(1.0, math.nan), TINY) == "diverged"
    assert rows.shown(None, TINY) == ""
    assert rows.ahead_by(accuracy, 0.9, 0.8) == "+.1000"
    assert rows.ahead_by(TINY, 1.1, 1.0) == "−10.0 %"
    assert rows.ahead_by(TINY._replace(metric="return"), 550.0, 500.0) == "+10.0 %"
    assert rows.ahead_by(TINY, math.nan, 1.0) == "diverged"
    assert rows.ahead_by(TINY, 0.42, 0.01) == "42 times as large"


def test_the_task_table_has_colours_blanks_and_nobody_who_was_not_run(two_sides, monkeypatch):
    folder, run = two_sides
    monkeypatch.setitem(TASKS, "second", TINY)
    values = {"mu2_auto": 1.05, "adam": 1.0, "dog": 1.01, "dowg": 1.3, "prodigy": 0.9}
    values |= dict.fromkeys(roles.RETUNED, 1.2)
    for peer, value in values.items():
        whole = peer != "prodigy"  # which is best, but not tuned
        run("tiny", peer, value, rates=None if whole else [PEERS[peer].untouched])
    run("second", "adam", 2.0, rates=[1e-3])
    head, body = rows.task_rows(results_of(folder), DEVELOPMENT, roles.UNTOUCHED)
    assert head == ["", "tiny (loss)", "second (loss)"]
    shown = {row[0]: row[1:] for row in body}
    for peer in roles.RETUNED:
        assert shown.pop(PEERS[peer].title) == ["🟥 1.200 ± 0.014", ""]
    assert shown == {
        "mu2_auto": ["🟧 1.050 ± 0.014", ""],
        "Adam": ["🟩 1.000 ± 0.014", "**2.000 ± 0.014**"],
        "DoG, averaged": ["🟨 1.010 ± 0.014", ""],
        "DoWG": ["🟥 1.300 ± 0.014", ""],
        "Prodigy": ["**🟩 0.9000 ± 0.0141**", ""],
    }


def test_scores_are_over_the_tasks_that_have_a_target_and_say_how_many(two_sides, monkeypatch):
    folder, run = two_sides
    run("tiny", "mu2_auto", 1.0)
    *first, last = roles.RETUNED
    for peer in first:
        run("tiny", peer, 1.0)
    assert not rows.score_rows(results_of(folder))[1]  # one of the strongest peers is missing
    run("tiny", last, 1.0)
    run("tiny", "adam", 2.0)
    run("other", "adam", 0.5)
    head, body = rows.score_rows(results_of(folder))
    assert head[1] == "development, untouched (1 of 1 tasks)"
    assert head[4] == "confirmation, untouched (0 of 1 tasks)"
    shown = {row[0]: row[1:] for row in body}
    assert shown["mu2_auto"] == ["**1.000**"] * 3 + [""] * 6
    assert shown["Adam"] == ["0.000"] * 3 + [""] * 6
    assert set(shown) == {"mu2_auto", "Adam", *(PEERS[peer].title for peer in roles.RETUNED)}


def test_the_front_page_shows_the_scores_of_ours_beside_the_best_peer(two_sides):
    folder, run = two_sides
    for peer in roles.RETUNED:
        run("tiny", peer, 1.0)
        run("other", peer, 0.5 if peer == roles.RETUNED[-1] else 0.8)
    run("other", "mu2_auto", 0.9)
    assert not rows.best_score_rows(results_of(folder))[1]  # the other one of ours is missing
    run("other", "mu2_auto_spectral", 0.7)
    _, body = rows.best_score_rows(results_of(folder))
    assert [row[0] for row in body] == [
        f"confirmation tasks, {role} peers" for role in ("untouched", "calibrated", "tuned")
    ]
    assert all(row[1:3] == ["**1.00**", "0.00"] for row in body)
    assert all(row[3].partition(" ")[0] == "**1.00**" for row in body)  # who reached the target too


def test_factors_are_beside_the_factor_one_and_the_others_not_run(two_sides):
    folder, run = two_sides
    run("tiny", "mu2_auto", 1.0, rates=[0.1, 1.0])
    head, body = rows.factor_rows(results_of(folder))
    assert head == ["", "0.01", "0.1", "1", "10", "100"]
    assert body == [["tiny, loss", "not run", "−20.0 %", "1.000 ± 0.014", "not run", "not run"]]


def test_the_lists_of_tasks_have_every_kind_and_variants_say_what_was_not_run(tmp_path):
    results = analysis.Results(tmp_path)
    _, body = rows.list_rows(results)
    names = {name.strip("`") for row in body for name in row[1:3]}
    names |= {row[1].strip("`") for row in rows.fresh_rows(results)[1]}
    assert names == {name for name, task in TASKS.items() if task.variant_of is None}
    shown = {row[0]: row[1:] for row in body}
    assert shown["transformer"] == ["`transformer_topics`", "`transformer_source`", "loss", "500"]
    assert shown["convolutional network"][2:] == ["accuracy", "300"]
    assert shown["residual network with BatchNorm"][3] == "400 / 300"
    _, variants = rows.variant_rows(results)
    assert len(variants) == len(VARIANTS) + 3
    assert all(row[2:] == [*["not run"] * 3, ""] for row in variants)


def test_documents_can_show_every_table_and_sentence(tmp_path):
    sided = {"front", "tasks", "answer", "spectral", "coverage"}
    for show in (*rows.TABLES, *sentences.SENTENCES):
        options = " side=confirmation" * (show in sided) + " role=tuned" * (show == "tasks")
        marker = f"<!-- table {tmp_path} self_tuning show={show}{options} -->\n"
        text = tables.render(f"{marker}<!-- end of table -->\n")
        assert text.startswith(marker)
        assert len(text.splitlines()) > 2
        assert tables.render(text) == text
    with pytest.raises(ValueError, match="no such table: nothing"):
        tables.self_tuning_table(tmp_path, "nothing")


def test_a_goal_is_missed_once_what_is_left_cannot_save_it(two_sides, monkeypatch):
    folder, run = two_sides
    for name in ("second", "third"):
        monkeypatch.setitem(TASKS, name, TINY)

    def verdicts():
        of_tuned = [g for g in goals.goals(results_of(folder)) if g.text.startswith("(b) dev")]
        return [goal.met for goal in of_tuned]

    assert verdicts() == [None] * 4
    for peer in roles.RETUNED:
        for name in ("tiny", "second", "third"):
            run(name, peer, 1.0)
    run("tiny", "mu2_auto", 1.15)
    # Two of three can still be ahead, but not four fifths near, nor all within 10 %.
    assert verdicts() == [None, False, False, None]
    run("second", "mu2_auto", 0.9)
    run("third", "mu2_auto", 1.01)
    assert verdicts() == [True, False, False, True]


def test_the_goals_of_both_choices_stand_side_by_side(two_sides):
    folder, run = two_sides
    for peer in roles.RETUNED:
        run("tiny", peer, 1.0)
    run("tiny", "mu2_auto", 1.15)
    run("tiny", "mu2_auto_spectral", 0.9)
    head, body = rows.goal_rows(results_of(folder))
    assert head[1] == "mu2_auto()"
    assert "spectral" in head[3]
    shown = {row[0]: (row[1], row[3]) for row in body}
    on_tiny = "(b) development: "
    assert shown[f"{on_tiny}ahead of the best tuned peer on a third"] == ("**missed**", "**met**")
    assert shown[f"{on_tiny}within 10 % on all"] == ("**missed**", "**met**")
    assert shown[f"{on_tiny}no seed collapses"] == ("**met**", "**met**")


def test_a_tie_with_the_best_peer_is_not_ahead(two_sides):
    folder, run = two_sides
    for peer in ("mu2_auto", *roles.RETUNED):
        run("tiny", peer, 1.0)
    results = results_of(folder)
    assert "the best tuned peer on 0 of 1" in sentences.answer(results, DEVELOPMENT)
    (goal,) = (g for g in goals.goals(results) if g.text.startswith("(b) development: ahead"))
    assert goal.met is False


def test_the_profile_goal_says_on_how_many_tasks_and_beside_how_many_peers(two_sides, monkeypatch):
    folder, run = two_sides
    monkeypatch.setitem(TASKS, "second", TINY)
    verdict = lambda: goals.goals(results_of(folder))[0]
    run("tiny", "mu2_auto", 1.2)
    assert verdict().figures == "0 of 16 peers are complete"
    for peer in roles.RETUNED:
        run("tiny", peer, 1.0)
        run("second", peer, 1.0)
    behind_so_far = verdict()
    assert behind_so_far.met is None
    assert behind_so_far.figures.endswith("the best of 6 of 16 peers, on 1 of 2 tasks")
    run("second", "mu2_auto", 1.2)
    assert verdict().met is False  # other peers could only make it worse
    for name in ("tiny", "second"):
        for peer in set(OTHERS) - set(roles.RETUNED):
            run(name, peer, 1.0, rates=[PEERS[peer].untouched])
        run(name, "mu2_auto", 0.9, rates=[1.0])
    assert verdict().met is False  # all reach the target at the first point: none is ahead


def test_times_are_those_of_the_quickest_runs_beside_adamw(two_sides):
    folder, _ = two_sides
    taken = {"adamw_cosine": (9.0, 2.0, 2.5), "mu2_auto": (30.0, 3.0), "muon_cosine": (8.0,)}
    for peer, times in taken.items():
        for seed, seconds in enumerate(times):
            found = made_up(1.0) | {"seconds": seconds}
            Records(folder, "tiny").add(Cell(peer, 1.0, seed), found, {})
    head, body = rows.time_rows(results_of(folder))
    assert head == ["", "AdamW, cosine", "× mu2_auto()", "× with `spectral`", "× Muon, cosine"]
    assert body == [
        ["tiny", "50 ms", "1.5", "not run", "not run"],  # one run alone has a compilation in it
        ["**median** (quartiles)", "", "**1.5** (1.5–1.5)", "not run", "not run"],
    ]


def test_chosen_rates_at_the_ends_of_their_grids_are_counted(two_sides):
    folder, run = two_sides
    run("tiny", "adam", 1.0)  # best at the untouched rate, inside of the grid
    run("tiny", "dog", 1.0)
    for peer, rate in (("dog", PEERS["dog"].rates[-1]), ("prodigy", PEERS["prodigy"].rates[0])):
        run("tiny", peer, 1.0)
        Records(folder, "tiny").add(Cell(peer, rate, 0), made_up(0.1), {})
    assert sentences.edges(results_of(folder)) == (
        "Of 3 rates that were chosen for a peer and a task, 1 are the smallest and 1 the largest "
        "of their grid.\n"
    )


def test_a_frozen_rule_keeps_all_names_of_its_commit(tmp_path, monkeypatch):
    found = {"mu2_auto": {"rate": 0.5}, "mu2_auto_spectral": {"rate": 0.1}}
    commits = iter(("abc", "def", "123"))
    monkeypatch.setattr(frozen, "fingerprint", lambda: found)
    monkeypatch.setattr(frozen, "git", lambda *a: next(commits) if a[0] == "rev-parse" else "")
    file = tmp_path / "frozen.json"
    for _ in range(2):
        frozen.write(file)
    assert [each["commits"] for each in frozen.read(file).values()] == [["abc", "def"]] * 2
    found = {"mu2_auto": {"rate": 0.51}, "mu2_auto_spectral": {"rate": 0.1}}
    assert frozen.differences(frozen.read(file)) == ["mu2_auto: rate 0.51 instead of 0.5"]
    frozen.write(file)
    assert frozen.read(file)["mu2_auto"]["commits"] == ["123"]
    assert frozen.read(file)["mu2_auto_spectral"]["commits"] == ["abc", "def", "123"]
    monkeypatch.setattr(frozen, "git", lambda *a: None)
    with pytest.raises(SystemExit, match="commit the changes of mu2_optax/ first"):
        frozen.write(file)
