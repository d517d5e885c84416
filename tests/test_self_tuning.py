"""The self-tuning benchmark: what decides its published numbers, and one run of its command."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
from benchmarks import recipes, tables
from benchmarks.optimizers import OURS, PEERS
from benchmarks.schedule_free_plus import schedule_free_plus
from benchmarks.self_tuning import __main__ as command
from benchmarks.self_tuning import analysis, frozen, goals, pictures, roles, rows, runner, summary
from benchmarks.self_tuning.task import CONFIRMATION, DEVELOPMENT, Cell, Task, records
from benchmarks.self_tuning.tasks import TASKS, VARIANTS, finetuning, images
from benchmarks.training import Functions
from mu2_optax.sweep import Data

pytestmark = pytest.mark.usefixtures("compiled_quickly")

OF_EACH_KIND = {task.kind: name for name, task in TASKS.items() if name not in VARIANTS}


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
    for module in (goals, rows, pictures):
        monkeypatch.setattr(module, "VARIANTS", {})
    return TINY


@pytest.fixture
def small_images(monkeypatch):
    """Noise in the place of images."""

    def load(name, data_dir=None):
        shape = {"cifar10": (32, 32, 3), "digits": (8, 8)}.get(name, (28, 28))
        rng = np.random.default_rng(0)
        draw = lambda n: rng.standard_normal((n, *shape)).astype(np.float32)
        label = lambda n: rng.integers(0, 10, n).astype(np.int32)
        return Data(draw(2700), label(2700), draw(3200), label(3200))

    monkeypatch.setattr(images.datasets, "load", load)
    monkeypatch.setattr(finetuning, "BEFORE", 300)


@pytest.mark.parametrize("name", OF_EACH_KIND.values())
def test_runner_traces_a_task_of_every_kind(name, small_images):
    task = TASKS[name]
    data = jax.tree.map(jnp.asarray, task.load(None))
    found = jax.eval_shape(runner.make_train(task, PEERS["adam"]), data, 1e-3, 0)
    assert found["curve"].shape == (runner.POINTS,)
    assert found["validation"].shape == found["test"].shape == ()


@pytest.mark.parametrize("name", [name for name in PEERS if name not in OURS])
def test_peers_go_downhill_untouched_and_rates_and_seeds_compile_nothing_anew(name):
    peer = PEERS[name]
    assert peer.untouched in peer.rates
    made = []
    counted = peer._replace(make=lambda *a: made.append(a) or peer.make(*a))
    train, data = runner.make_train(TINY, counted), runner.load(TINY)
    found = runner.as_numbers(train(data, peer.untouched, 0))
    start = quadratic(data).measure(quadratic(data).init(None), None, "validation")
    assert found["validation"] <= float(start) + 1e-6
    for rate, seed in ((peer.rates[0], 1), (peer.rates[-1], 2)):
        train(data, rate, seed)
    assert len(made) == 1


def test_muon_leaves_embeddings_and_last_layers_to_adamw():
    matrix, kernel = jnp.ones((4, 4)), jnp.ones((3, 3, 2, 4))
    params = {"net": [{"w": matrix, "b": jnp.ones(4)}] * 2, "characters": matrix, "conv": kernel}
    marks = recipes.matrices_inside(params)
    assert marks["net"][0]["w"] is not None
    assert marks["conv"].reduction_axis == (0, 1, 2)
    assert marks["net"][0]["b"] is marks["net"][1]["w"] is marks["characters"] is None


@pytest.mark.parametrize("warmup", [0, 3])
def test_schedule_free_plus_is_its_formulas(warmup):
    rng = np.random.default_rng(0)
    A, start = rng.standard_normal((6, 4)), rng.standard_normal(4)
    beta, b1, b2, decay, factor = 0.9, 0.9, 0.95, 0.3, 0.7
    x, y, z = start.copy(), start.copy(), start.copy()
    m, v, largest, weights = np.zeros(4), np.zeros(4), 1e-8, 0.0
    tx = schedule_free_plus(factor, warmup, weight_decay=decay)
    params = jnp.asarray(start, jnp.float32)
    state = tx.init(params)
    for k in range(12):
        f, g = 0.5 * np.mean((A @ y) ** 2), A.T @ (A @ y) / 6
        warm = min(1, (k + 1) / warmup) if warmup else 1
        rate = max(0, f + beta * g @ (z - x)) / (np.sqrt(np.pi / 2) * np.abs(g).sum())
        rate *= factor * warm
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        direction = (m / (1 - b1 ** (k + 1))) / (np.sqrt(v / (1 - b2 ** (k + 1))) + 1e-8)
        z = z - rate**2 * decay * y - rate * direction
        largest = max(largest, rate)
        weights += 0.0 if k < warmup else largest**2
        c = 1.0 if k < warmup else largest**2 / weights
        x = (1 - c) * x + c * z
        y = beta * x + (1 - beta) * z

        loss = lambda p: 0.5 * jnp.mean((jnp.asarray(A, jnp.float32) @ p) ** 2)
        found, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params, value=found)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params, y, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(state.x, x, rtol=2e-4, atol=2e-5)


def test_averaged_dog_keeps_the_polynomial_average():
    tx = recipes.averaged(optax.sgd(1.0), power=8.0)
    params, average = jnp.zeros(1), 0.0
    state = tx.init(params)
    for t in range(1, 6):
        updates, state = tx.update(-jnp.ones(1), state, params)
        params = optax.apply_updates(params, updates)
        average = (1 - 9 / (t + 8)) * average + 9 / (t + 8) * float(params[0])
        np.testing.assert_allclose(state.average, average, rtol=1e-6)


def test_profile_scores_are_those_done_by_hand():
    times = analysis.ratios({"a": np.array([10.0, 40, np.inf]), "b": np.array([20.0, 20, np.inf])})
    np.testing.assert_allclose(times["a"], [1, 2, np.inf])  # nobody reaches the last target
    assert analysis.profile(times["b"], 1.5) == pytest.approx(1 / 3)
    assert analysis.profile(times["b"], 2) == pytest.approx(2 / 3)
    # One task from τ = 1, another from 2 on, the third never: (3 + 2) / (3 · 3).
    assert analysis.profile_scores(times)["a"] == pytest.approx(5 / 9)


def test_first_reached_and_behind_know_the_direction_of_a_metric():
    accuracy, returns = TINY._replace(metric="accuracy"), TINY._replace(metric="return")
    assert analysis.first_reached(TINY, [3.0, 1.0, 2.0, 0.5], 1.5) == 0.5
    assert analysis.first_reached(TINY, [3.0, math.nan], 1.5) == math.inf
    assert analysis.first_reached(accuracy, [0.1, 0.9], 0.9) == 1.0
    assert analysis.behind(TINY, 1.1, 1.0) == pytest.approx(0.1)
    assert analysis.behind(accuracy, 0.895, 0.9) == pytest.approx(0.02)
    assert analysis.behind(returns, -110.0, -100.0) == pytest.approx(0.1)
    assert analysis.behind(TINY, math.nan, 1.0) == math.inf


def made_up(validation, test=0.0):
    return {"curve": [validation] * 20, "validation": validation, "test": test, "seconds": 1.0}


def test_records_keep_nan_replace_a_run_and_refuse_another_task(tmp_path):
    one, two = records(tmp_path, "tiny"), records(tmp_path, "tiny")
    one.add({Cell("adam", 0.1, 0): made_up(math.nan)}, {"commit": "a"})
    two.add({Cell("adam", 0.1, 1): made_up(2.0)}, {"commit": "b"})
    one.add({Cell("adam", 0.1, 1): made_up(3.0)}, {"commit": "a"})
    found = one.read()
    assert math.isnan(found[Cell("adam", 0.1, 0)]["validation"])
    assert found[Cell("adam", 0.1, 1)]["curve"] == [3.0] * 20
    assert [info["commit"] for info in one.info()] == ["a", "b"]
    json.loads(one.file.read_text(), parse_constant=pytest.fail)  # no NaN in the file
    two.drop("adam")
    assert not one.read()
    one.file.rename(tmp_path / "other.json")
    with pytest.raises(SystemExit, match="holds runs of tiny, not of other"):
        records(tmp_path, "other").read()


def test_roles_choose_rates_by_validation_alone(tiny):
    cells = roles.grid("adam")
    runs = {cell: made_up(abs(cell.rate - 1e-2), test=math.nan) for cell in cells}
    assert roles.tuned_rate(tiny, "adam", runs) == 1e-2
    assert roles.calibrated_rate("adam", {"tiny": runs}) == 1e-2
    del runs[cells[-1]]
    assert roles.calibrated_rate("adam", {"tiny": runs}) is None  # the grid is not complete


def test_roles_calibrate_on_average_and_no_task_decides_alone(monkeypatch, tiny):
    monkeypatch.setitem(TASKS, "second", TINY)
    monkeypatch.setitem(TASKS, "third", TINY)
    of = lambda best, worse: {
        cell: made_up(0.1 if cell.rate == best else worse) for cell in roles.grid("adam")
    }
    # log 1.5 = .41 on two tasks against at most 1 on the third, where all others diverged
    runs = {"tiny": of(1e-3, 0.15), "second": of(1e-3, 0.15), "third": of(0.1, math.nan)}
    assert roles.calibrated_rate("adam", runs) == 0.1
    runs["third"] = of(1e-2, 0.15)
    assert roles.calibrated_rate("adam", runs) == 1e-3


def test_runner_lets_the_test_split_change_nothing():
    data = numbers(None)
    train = runner.make_train(TINY, PEERS["adam"])
    one, other = (train(data | {"test": data["test"] + add}, 1e-2, 0) for add in (0, 5))
    np.testing.assert_array_equal(one["curve"], other["curve"])
    assert one["test"] != other["test"]


def test_command_goes_on_where_it_stopped_and_draws(tmp_path, tiny, monkeypatch, capsys):
    made = []
    make = runner.make_train
    monkeypatch.setattr(runner, "make_train", lambda *a: made.append(1) or make(*a))
    options = ["--peers", "adam", "adamw_cosine", "--out", str(tmp_path), "--seeds", "2"]
    assert command.run(command.arguments([*options, "--role", "untouched"]))
    assert len(made) == 2
    args = command.arguments([*options, "--role", "untouched", "tuned", "--minutes", "1e-9"])
    assert not command.run(args)  # time was over
    assert len(made) == 2  # and nothing was missing before
    assert command.run(command.arguments([*options, "--role", "tuned", "calibrated"]))
    monkeypatch.setattr("sys.argv", ["x", "--report", "--out", str(tmp_path), "--seeds", "2"])
    command.main()
    assert "not known yet" in capsys.readouterr().out
    drawn = {f"{name}.png" for name in ("front", "beside", "profiles")}  # no factors yet
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.json", *drawn}
    results = analysis.Results(tmp_path, seeds=2)
    scores = results.scores(roles.TUNED, ["tiny"])
    assert set(scores) == {"adam", "adamw_cosine"}
    assert max(scores.values()) == 1.0
    assert results.best_tuned("tiny") is None  # the other strong peers were not run


def test_command_locks_mu2_auto_out_of_confirmation_until_frozen(capsys):
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


def test_mu2_auto_gives_what_it_gave_when_it_was_frozen(monkeypatch):
    changed = frozen.differences(frozen.read())
    assert not changed, "\n".join([*changed, frozen.REMEDY])
    other = functools.partial(mu2_optax.mu2_auto, first_step=1.01)
    monkeypatch.setattr(mu2_optax, "mu2_auto", other)
    assert frozen.differences(frozen.read())


def test_frozen_rule_keeps_all_names_of_its_commit(tmp_path, monkeypatch):
    found = {"mu2_auto": {"rate": 0.5}, "mu2_auto_spectral": {"rate": 0.1}}
    commits = iter(("abc", "def", "123"))
    monkeypatch.setattr(frozen, "fingerprint", lambda: found)
    monkeypatch.setattr(frozen, "git", lambda *a: next(commits) if a[0] == "rev-parse" else "")
    file = tmp_path / "frozen.json"
    for _ in range(2):
        frozen.write(file)
    assert [each["commits"] for each in frozen.read(file).values()] == [["abc", "def"]] * 2
    found["mu2_auto"] = {"rate": 0.51}
    assert frozen.differences(frozen.read(file)) == ["mu2_auto: rate 0.51 instead of 0.5"]
    frozen.write(file)
    assert frozen.read(file)["mu2_auto"]["commits"] == ["123"]
    monkeypatch.setattr(frozen, "git", lambda *a: None)
    with pytest.raises(SystemExit, match="commit the changes of mu2_optax/ first"):
        frozen.write(file)


@pytest.fixture
def two_sides(tmp_path, tiny, monkeypatch):
    """A task on either side, and a function that makes up the runs of an optimizer."""
    monkeypatch.setitem(TASKS, "other", TINY._replace(side=CONFIRMATION, metric="accuracy"))

    def run(name, peer, value, *, rates=None):
        """Rates with two seeds; the untouched rate gives ``value`` ± .01, the others less."""
        sign = 1 if TASKS[name].higher_is_better else -1
        for rate in rates or PEERS[peer].rates:
            of = value - sign * (0.0 if rate == PEERS[peer].untouched else 0.2)
            found = {
                Cell(peer, rate, s): made_up(of, of + by) for s, by in enumerate((-0.01, 0.01))
            }
            records(tmp_path, name).add(found, {"frozen": "abc"})

    run.results = lambda: analysis.Results(tmp_path, seeds=2)
    return run


def test_tasks_are_compared_once_the_strongest_peers_are_tuned(two_sides):
    run = two_sides
    run("tiny", "mu2_auto", 1.0)
    *first, last = roles.RETUNED
    for peer in first:
        run("tiny", peer, 0.8)
    run("tiny", last, 0.5, rates=[PEERS[last].untouched])  # untouched, and therefore not tuned
    assert not run.results().compared(TASKS)
    assert "not run yet" in rows.markdown(*summary.answer_rows(run.results(), DEVELOPMENT))
    run("tiny", last, 0.5)
    results = run.results()
    assert goals.margins(results, TASKS)["tiny"] == pytest.approx((1.0, 1.02))
    ((call, *ahead, near, far, worst),) = summary.answer_rows(results, DEVELOPMENT)[1]
    assert (call, ahead) == ("`mu2_auto()`", ["0 of 1"] * 3)
    assert (near, far, worst) == ("0", "0", "`tiny` (−100.0 %)")
    (points,) = pictures.behind_tuned(results, DEVELOPMENT, pictures.BESIDE).values()
    assert points == pytest.approx([1.0, None, 0.6, 0.6, 0.0], abs=1e-6)


def test_goals_are_missed_once_what_is_left_cannot_save_them(two_sides, monkeypatch):
    run = two_sides
    for name in ("second", "third"):
        monkeypatch.setitem(TASKS, name, TINY)
    every = lambda: goals.goals(run.results())
    verdicts = lambda: [goal.met for goal in every() if goal.text.startswith("(b) dev")]
    assert verdicts() == [None] * 4
    for peer in roles.RETUNED:
        for name in ("tiny", "second", "third"):
            run(name, peer, 1.0)
    run("tiny", "mu2_auto", 1.15)
    # Two of three can still be ahead, but not four fifths near, nor all within 10 %.
    assert verdicts() == [None, False, False, None]
    run("second", "mu2_auto", 1.0)  # a tie is not ahead
    run("third", "mu2_auto", 1.01)
    assert verdicts() == [False, False, False, True]
    assert "the best of 6 of 16 peers, on 3 of 3 tasks" in every()[0].figures


def test_scores_are_over_the_tasks_that_have_a_target(two_sides):
    run = two_sides
    run("tiny", "mu2_auto", 1.0)
    *first, last = roles.RETUNED
    for peer in first:
        run("tiny", peer, 1.0)
    assert not rows.score_rows(run.results())[1]  # one of the strongest peers is missing
    run("tiny", last, 1.0)
    run("tiny", "adam", 2.0)
    head, body = rows.score_rows(run.results())
    assert head[1] == "development, untouched (1 of 1 tasks)"
    assert head[4] == "confirmation, untouched (0 of 1 tasks)"
    shown = {row[0]: row[1:] for row in body}
    assert shown["mu2_auto"] == ["**1.000**"] * 3 + [""] * 6
    assert shown["Adam"] == ["0.000"] * 3 + [""] * 6


def test_tables_render_without_and_with_results(tmp_path):
    sided = {"front", "tasks", "answer"}
    for show in rows.TABLES | summary.TABLES:
        options = " side=later" * (show in sided) + " role=tuned" * (show == "tasks")
        for folder in (tmp_path, frozen.FOLDER):
            marker = f"<!-- table {folder} self_tuning show={show}{options} -->\n"
            text = tables.render(f"{marker}<!-- end of table -->\n")
            assert text.startswith(marker)
            assert len(text.splitlines()) > 3
    with pytest.raises(ValueError, match="no such table: nothing"):
        tables.self_tuning_table(tmp_path, "nothing")
