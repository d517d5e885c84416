"""The committed results say what the documents say, and what was promised."""

import csv
import json
import re

import numpy as np
import pytest
from loading import ROOT, load_script
from tiny_data import cifar_files, write

RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = [
    "optimizer",
    "learning_rate",
    "seed",
    "projection",
    "steps",
    "gradient_evaluations",
    "test_accuracy",
    "test_loss",
]
EXPERIMENTS = sorted(
    path.parent
    for path in RESULTS.glob("*/results.csv")
    if path.parent.name.startswith(("convex", "nonconvex", "cifar10", "robustness"))
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BASELINES = ("storm", "anytime_sgd", "sgd", "momentum", "adam")


def rows_of(folder):
    with (RESULTS / folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def mean_accuracies(folder, **values):
    """Mean test accuracy by optimizer and rate, computed here on its own."""
    found = {}
    for row in rows_of(folder):
        if all(row[name] == value for name, value in values.items()):
            key = row["optimizer"], float(row["learning_rate"])
            found.setdefault(key, []).append(float(row["test_accuracy"]))
    return {key: float(np.mean(accuracies)) for key, accuracies in found.items()}


PAPER = {"mu2_sgd", "mu2_extra_sgd", "adam", *BASELINES}
PEERS = {"mu2_adam", "schedule_free_sgd", "schedule_free_adamw", "prodigy", "dog"}


@pytest.mark.parametrize(
    ("folder", "optimizers", "rates", "seeds"),
    [
        ("convex_mnist", PAPER, 9, 3),
        ("convex_fashion_mnist", PAPER, 9, 3),
        ("nonconvex_mnist", PAPER | {"schedule_free_sgd"}, 6, 3),
        ("cifar10", {"mu2_sgd", "storm", "sgd", "momentum", "adam", "schedule_free_sgd"}, 6, 1),
        ("robustness_logistic_mnist", PAPER - {"storm", "anytime_sgd"} | PEERS, 9, 3),
        ("robustness_logistic_fashion_mnist", PAPER - {"storm", "anytime_sgd"} | PEERS, 9, 3),
        ("robustness_cnn_mnist", PAPER - {"storm", "anytime_sgd"} | PEERS, 6, 3),
    ],
)
def test_each_experiment_was_run_as_a_whole(folder, optimizers, rates, seeds):
    rows = rows_of(folder)
    assert {row["optimizer"] for row in rows} == optimizers
    assert len({row["learning_rate"] for row in rows}) == rates
    assert len({row["seed"] for row in rows}) == seeds


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_results_are_tidy_complete_and_say_how_they_were_made(folder):
    rows = rows_of(folder)
    assert list(rows[0]) == COLUMNS
    cells = [tuple(row[name] for name in COLUMNS[:5]) for row in rows]
    assert len(set(cells)) == len(cells)
    run = json.loads((folder / "run.json").read_text())
    assert run["command"].startswith("python benchmarks/")
    assert (ROOT / run["command"].split()[1]).is_file()
    assert {"python", "jax", "optax", "mu2-optax"} <= run["versions"].keys()
    assert "CPU" in run["machine"]
    # Every optimizer has every rate for every seed.
    rates, seeds = ({row[name] for row in rows} for name in ("learning_rate", "seed"))
    assert len(seeds) == run["seeds"]
    kinds = {(row["optimizer"], row["projection"], row["steps"]) for row in rows}
    assert len(rows) == len(kinds) * len(rates) * len(seeds)
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert all(path.stat().st_size < 1_000_000 for path in folder.iterdir())


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_every_gradient_is_counted(folder):
    costs = {"mu2_sgd": 2, "storm": 2, "mu2_adam": 2, "mu2_extra_sgd": 3}
    for row in rows_of(folder):
        cost = costs.get(row["optimizer"], 1)
        assert int(row["gradient_evaluations"]) == cost * int(row["steps"])


@pytest.mark.parametrize(
    ("folder", "level"), [("convex_mnist", 0.884), ("convex_fashion_mnist", 0.79)]
)
@pytest.mark.parametrize("projection", ["per_tensor", "global"])
def test_in_a_ball_any_rate_from_a_hundredth_to_ten_thousand_will_do(folder, level, projection):
    means = mean_accuracies(folder, projection=projection)
    rates = sorted({rate for _, rate in means})
    assert rates == [10.0**power for power in range(-4, 5)]
    mu2 = {rate: means["mu2_sgd", rate] for rate in rates}
    best = max(mu2.values())
    assert best == pytest.approx(level, abs=0.01)
    assert all(best - mu2[rate] <= 0.01 for rate in rates if rate >= 0.01)
    for rate in rates:
        if rate >= 0.1:
            assert all(mu2[rate] > means[name, rate] for name in BASELINES), rate


def test_documents_show_what_the_results_say():
    tables = load_script("benchmarks/paper/tables.py")
    shown = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert tables.render(text) == text, f"python benchmarks/paper/tables.py {page.name}"
        shown += len(tables.MARKED.findall(text))
    assert shown >= 4


def test_the_tables_of_accuracies_agree_with_the_files():
    titles = load_script("benchmarks/paper/optimizers.py").TITLES
    names = {title: name for name, title in titles.items()}
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        marker = r"<!-- table benchmarks/results/(\w+)/results.csv accuracy projection=(\w+) -->\n"
        for folder, projection, body in re.findall(marker + r"(.*?)<!-- end", text, re.DOTALL):
            means = mean_accuracies(folder, projection=projection)
            head, _, *lines = [
                [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in body.splitlines()
            ]
            for title, *cells in lines:
                for rate, cell in zip(head[1:], cells, strict=True):
                    mean = means[names[title], float(rate)]
                    assert np.isnan(mean) if cell == "–" else abs(float(cell) - mean) <= 5.1e-4
                    checked += 1
    assert checked >= 7 * 9


def test_every_picture_in_the_documents_exists():
    for page in PAGES:
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).is_file(), (page.name, target)


def test_the_convex_experiment_runs_from_end_to_end_and_resumes(tmp_path, monkeypatch):
    convex = load_script("benchmarks/paper/convex.py")
    options = ["--data", "digits", "--seeds", "2", "--lrs", "0.1,10", "--steps", "4"]
    options += ["--evaluations", "2", "--optimizers", "mu2_sgd,sgd", "--projections", "global"]
    monkeypatch.setattr("sys.argv", ["convex.py", *options, "--out", str(tmp_path)])

    def full_disk(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(convex.records, "write_rows", full_disk)
        with pytest.raises(OSError, match="no space left"):
            convex.main()
    assert (tmp_path / "journal" / "global-mu2_sgd.jsonl").is_file()
    convex.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "curves.png",
        "figure.png",
        "results.csv",
        "results.json",
        "run.json",
    ]
    rows = convex.records.read_rows(tmp_path / "results.csv")
    assert len(rows) == 2 * 2 * 2
    assert {row["gradient_evaluations"] for row in rows} == {4, 8}


def test_the_cnn_experiment_stops_in_time_and_goes_on(tmp_path, monkeypatch, capsys):
    nonconvex = load_script("benchmarks/paper/nonconvex.py")
    options = ["--data", "digits", "--seeds", "2", "--lrs", "0.1", "--steps", "2"]
    options += ["--optimizers", "sgd,schedule_free_sgd", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["nonconvex.py", *options])
    run_cell = nonconvex.network.run_cell

    def killed(task, steps, rate, seed, count):
        if seed == 1:
            raise KeyboardInterrupt
        return run_cell(task, steps, rate, seed, count)

    with monkeypatch.context() as patch:
        patch.setattr(nonconvex.network, "run_cell", killed)
        with pytest.raises(KeyboardInterrupt):
            nonconvex.main()
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 2
    capsys.readouterr()
    nonconvex.main()
    assert capsys.readouterr().out.count("seed 1") == 2
    rows = nonconvex.records.read_rows(tmp_path / "results.csv")
    assert len(rows) == 4
    assert all(np.isfinite(row["test_loss"]) for row in rows)
    assert not (tmp_path / "journal.jsonl").exists()
    monkeypatch.setattr(nonconvex, "BATCH", 32)
    with pytest.raises(SystemExit, match="holds runs with batch 64, not 32: choose another folder"):
        nonconvex.main()


def test_a_network_sees_every_image_once_an_epoch_in_an_order_of_the_seed():
    shuffled = load_script("benchmarks/paper/nonconvex.py").network.shuffled
    batches = list(shuffled(images=10, batch=4, seed=3, count=5))
    assert [len(rows) for rows in batches] == [4] * 5
    first, second = np.split(np.concatenate(batches), 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    longer = list(shuffled(images=10, batch=4, seed=3, count=8))
    np.testing.assert_array_equal(longer[:5], batches)  # more steps go on with the same batches
    assert (longer[0] != next(shuffled(images=10, batch=4, seed=4, count=8))).any()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logistic", "cnn"])
def test_the_comparison_of_peers_counts_steps_and_evaluations(task, tmp_path, monkeypatch, capsys):
    robustness = load_script("benchmarks/robustness.py")
    options = ["--task", task, "--data", "digits", "--seeds", "1", "--lrs", "0.1,1", "--steps", "6"]
    options += ["--optimizers", "mu2_sgd,sgd", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["robustness.py", *options])
    robustness.main()
    rows = rows_of(tmp_path)
    kinds = {(row["optimizer"], row["steps"], row["gradient_evaluations"]) for row in rows}
    assert kinds == {("mu2_sgd", "6", "12"), ("mu2_sgd", "3", "6"), ("sgd", "6", "6")}
    assert (tmp_path / "measures.csv").is_file()
    assert "sensitivity" in capsys.readouterr().out
    assert not list(tmp_path.glob("journal*"))
    if task == "cnn":  # what is in the results is not run again
        robustness.main()
        assert "seed 0" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_cifar_experiment_runs_on_tiny_data(tmp_path, monkeypatch):
    cifar10 = load_script("benchmarks/paper/cifar10.py")
    write(tmp_path / "data", cifar_files(records=8))
    options = [
        "--data-dir",
        str(tmp_path / "data"),
        "--width",
        "2",
        "--depth",
        "10",
        "--batch",
        "8",
    ]
    options += ["--steps", "2", "--seeds", "1", "--lrs", "0.1", "--out", str(tmp_path / "out")]
    options += ["--optimizers", "mu2_sgd,schedule_free_sgd"]
    monkeypatch.setattr("sys.argv", ["cifar10.py", *options])
    cifar10.main()
    assert len(rows_of(tmp_path / "out")) == 2


def test_the_command_in_a_run_file_hides_the_folder_of_the_data():
    records = load_script("benchmarks/paper/records.py")
    script = str(ROOT / "benchmarks" / "robustness.py")
    shown = records.command_line([script, "--data-dir", "/home/me/data", "--seeds", "1"])
    assert shown == "python benchmarks/robustness.py --data-dir DATA --seeds 1"
    assert "/home" not in records.command_line([script, "--data-dir=/home/me/data"])


def test_projected_schedule_free_is_schedule_free_with_its_iterate_in_the_set():
    import jax.numpy as jnp
    import optax

    import mu2_optax

    optimizers = load_script("benchmarks/paper/optimizers.py")
    momentum = mu2_optax.fixed_momentum()
    far = mu2_optax.onto_l2_ball(1e6)
    free = optimizers.make_optimizer("schedule_free_sgd", 0.1, momentum, None)
    wide = optimizers.make_optimizer("schedule_free_sgd", 0.1, momentum, far)
    near = optimizers.make_optimizer(
        "schedule_free_sgd", 10.0, momentum, mu2_optax.onto_l2_ball(0.5)
    )
    params = [jnp.array([0.3, -0.4])] * 3
    states = [tx.init(params[0]) for tx in (free, wide, near)]
    for t in range(20):
        for i, tx in enumerate((free, wide, near)):
            grads = params[i] - jnp.array([jnp.sin(t), 2.0])
            updates, states[i] = tx.update(grads, states[i], params[i], grad_fn=None, batch=None)
            params[i] = optax.apply_updates(params[i], updates)
        x = optimizers.evaluation_params(states[2], params[2])
        assert float(jnp.linalg.norm(states[2].z)) <= 0.5 + 1e-5
        assert float(jnp.linalg.norm(x)) <= 0.5 + 1e-4
    np.testing.assert_allclose(params[0], params[1], atol=1e-5)
