"""Two runs on one page, by `write_comparison` and by ``mu2-sweep --compare``."""

import re

import numpy as np
import pytest
from sweep.report.pages import NASTY, RATES, Page, result, results, without_rate

from mu2_optax.sweep import SweepResult, save_results, write_comparison
from mu2_optax.sweep._command.cli import main

PAGE = "mu2-sweep-compare.html"


def later():
    """A second run: one label better, at another rate and with a narrower plateau, one new."""
    return {
        "flat": result("flat", [0.7, 0.8, 0.8, 0.92, 0.8], context={"ball": 3.0}),
        "new": result("new", [0.5] * 5, context={"ball": 3.0}),
    }


def compared(tmp_path, first=None, second=None, metric="test_accuracy", **options):
    write_comparison(first or results(), second or later(), metric, tmp_path / PAGE, **options)
    return (tmp_path / PAGE).read_text("utf-8")


def rows(text, heading):
    """The cells of each row of the table under a heading, by the row's name."""
    table = text[text.index(f"<h2>{heading}</h2>") :]
    found = re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', table[: table.index("</table>")])
    return {name: re.findall("<td[^>]*>([^<]*)</td>", cells) for name, cells in found}


def test_the_best_its_rate_and_the_plateau_are_set_side_by_side(tmp_path):
    table = rows(compared(tmp_path), "What is different")
    # Means of three seeds, 0.01 above what the results are made of; the best of both is 0.93.
    assert table["flat"] == [".910", ".930", "+.020", "0.1", "10", "3.0", "0.0", "−3.0"]
    assert table["steep"] == [".920", "--", "--", "1", "--", "0.0", "--", "--"]
    assert table["new"] == ["--", ".510", "--", "--", "0.01", "--", "0.0", "--"]


def test_better_is_shaded_and_worse_is_red_whichever_way_is_better(tmp_path):
    kinds = lambda text: re.findall(r'<td class="(near|lost|none)">[+−]', text)
    assert kinds(compared(tmp_path)) == ["near", "lost"]
    moved = re.findall(r'<td class="near">([\d.]+)</td>', compared(tmp_path))
    assert moved == ["10"]  # the best rate of `flat`, and none that is in one run alone
    text = compared(tmp_path, mode="min", tolerance=0.05)
    assert rows(text, "What is different")["flat"][2] == "0"
    runs = (result("flat", [height] * 5) for height in (0.5, 0.6))
    worse = compared(tmp_path, *runs, mode="min", tolerance=0.0)
    assert kinds(worse)[0] == "lost"
    assert "B is ahead on 0, behind on 1, and level on 0." in worse


def test_a_label_has_one_colour_solid_in_a_and_dashed_in_b(tmp_path):
    text = compared(tmp_path)

    def look(label):
        name = re.search(rf'<g class="line (s\d+)" data-label="{label}">', text)[1]
        return re.search(rf"\.{name}\{{--c:(#\w+);--dash:([^}}]*)\}}", text).groups()

    assert look("flat · A")[0] == look("flat · B")[0]
    assert look("flat · A")[1] == "none" != look("flat · B")[1]
    assert look("new · B")[0] != look("flat · B")[0]
    first = text[: text.index("</figure>")]
    assert first.count('class="chart"') in (1, 2)  # the same axes, and perhaps their best part


def test_what_differs_in_how_they_were_run(tmp_path):
    run = {"versions": {"jax": "0.10"}, "command": "mu2-sweep", "date": "2026-02-03T04:05:06+00:00"}
    first = result("a", [0.5] * 5, context={"task": "digits", "ball": None}, **run)
    second = result("a", [0.5] * 5, context={"task": "digits", "ball": 3.0}, **run)
    text = compared(tmp_path, first, second)
    assert rows(text, "How the runs differ") == {"ball": ["None", "3.0"]}
    assert "The same in both: optimizers, learning rates, seeds, task, command, date" in text
    assert "level on 1." in text
    text = compared(tmp_path, first, first)
    assert "In nothing that was recorded." in text
    other = SweepResult(first.metrics, {"learning_rate": RATES * 10}, first.seeds, first.finished)
    differing = rows(compared(tmp_path, first, {"a": other}), "How the runs differ")
    assert differing["learning rates"] == ["0.01, 0.1, 1, 10, 100", "0.1, 1, 10, 100, 1e3"]


def test_runs_need_not_have_finished_or_have_rates(tmp_path):
    free = {"free": without_rate("free", 0.9, python="mu2_optax.mu2_auto()")}
    table = rows(compared(tmp_path, free | results(), free), "What is different")
    assert table["free"] == [".910", ".910", "0", "none", "none", "--", "--", "--"]
    partial = results()
    partial["flat"].finished[3:] = False
    assert rows(compared(tmp_path, partial, later()), "What is different")["flat"][5] == "--"
    page = Page(compared(tmp_path, {NASTY: results()["flat"]}, later(), names=(NASTY, "b")))
    assert not page.all("i")
    assert NASTY in "".join(page.texts)


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html, got 'compare.txt'"):
        write_comparison(results(), later(), "test_accuracy", "compare.txt")
    with pytest.raises(
        ValueError, match=r"both runs have, got 'train_loss'; `second` has \['test_"
    ):
        compared(tmp_path, metric="train_loss")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders of finished runs."""
    monkeypatch.chdir(tmp_path)
    for name, run in (("run", results()), ("other", later())):
        (tmp_path / name).mkdir()
        save_results(run, tmp_path / name / "results.json")
    return tmp_path


def test_the_command_compares_two_folders(folders, capsys):
    assert main(["--compare", "run", "other"]) == 0
    out = capsys.readouterr().out
    assert PAGE in out
    assert out.count("test accuracy, mean of 3 seeds") == 2
    text = (folders / PAGE).read_text("utf-8")
    assert "<title>mu2-sweep: run and other</title>" in text
    assert rows(text, "How the runs differ")["ball"] == ["--", "3.0"]
    assert main(["--compare", "run", "other", "--out", "new/folder", "--tolerance", "0.3"]) == 0
    assert "within 0.3 of the best of both" in (folders / "new/folder" / PAGE).read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["run", "nothing"], ["needs two folders of finished runs", "nothing holds no results"]),
        (["run", "damaged"], ["results.json is not a result of a sweep"]),
        (["run", "begun"], ["needs finished cells", "--resume that run"]),
        (
            ["run", "losses"],
            ["no metric is in both runs: run has test_accuracy", "losses has loss"],
        ),
        (["run", "other", "--metric", "train_loss"], ["'train_loss' is not in both", "run has"]),
        (["run", "other", "--lrs", "1,2"], ["reads finished runs, so --lrs does not apply"]),
        (["run", "other", "--optimizers", "sgd"], ["--optimizers does not apply"]),
        (["run", "other", "--out", "run/results.json"], ["--out must name a folder"]),
    ],
)
def test_the_command_says_what_cannot_be_compared(folders, capsys, arguments, messages):
    for name in ("damaged", "begun", "losses"):
        (folders / name).mkdir()
    (folders / "damaged" / "results.json").write_text("{}")
    begun = SweepResult({}, {"learning_rate": RATES}, np.arange(3), np.zeros((5, 3), bool))
    save_results(begun, folders / "begun" / "results.json")
    save_results(result("a", [0.5] * 5, metric="loss"), folders / "losses" / "results.json")
    assert main(["--compare", *arguments]) == 2
    captured = capsys.readouterr()
    for message in messages:
        assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not (folders / PAGE).exists()


def test_the_command_needs_two_folders(capsys):
    with pytest.raises(SystemExit):
        main(["--compare", "one"])
    assert "expected 2 arguments" in capsys.readouterr().err
