"""The code of the documents runs, page by page, and its results are what the pages say."""

import pathlib
import re
import textwrap

import numpy as np
import pytest
from commands import call

from benchmarks import claims, cost_pictures, cost_tables, hand_written, tables

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {"how_do_i.md"}  # tests/test_how_do_i.py runs each of its recipes by itself
FENCE = re.compile(r"^( *)```python\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


def blocks(page):
    """The snippets of a page, each compiled under the page's name, with the page's line numbers."""
    text = page.read_text()
    found = list(FENCE.finditer(text))
    assert len(found) == text.count("```python"), "a fence is not closed where it was opened"
    for match in found:
        above = "\n" * text.count("\n", 0, match.start(2))
        yield compile(above + textwrap.dedent(match[2]), str(page), "exec")


def the_quick_start_finds_the_minimum(scope):
    # 1,000 noisy batches of 16: the best estimate there is has a standard error of 0.008.
    np.testing.assert_allclose(scope["average"]["w"], [1, -2, 3], atol=0.1)
    np.testing.assert_allclose(scope["average"]["b"], 0.5, atol=0.1)


def the_first_network_learns_and_the_rate_matters_little(scope):
    assert scope["accuracy"] > 0.95
    assert 0 < float(scope["bar"].error) < float(scope["bar"].noise)
    accuracies = scope["result"].final("accuracy")
    assert accuracies.min() > 0.85  # a rate of 0.01 is still on its way after 200 steps
    assert accuracies[2:].min() > 0.9


def the_drop_ins_arrive_where_the_others_did(scope):
    # Without noise in the targets; averages still hold a share of their first iterates.
    for name in ("before", "after", "found", "evaluated", "averaged", "chosen"):
        np.testing.assert_allclose(scope[name], [1, -2, 3], atol=0.2, err_msg=name)


def the_bar_is_below_the_noise(scope):
    assert 0 < float(scope["bar"].error) < float(scope["bar"].noise)


def runs_end_where_the_page_says(scope):
    assert int(scope["run"].samples) == 573
    # A noisy estimate of a number that is 2.
    assert float(scope["value"]) == pytest.approx(2, abs=0.3)


def the_average_ends_at_the_minimum(scope):
    # Noise of size 1 in each step, averaged over the run.
    np.testing.assert_allclose(scope["params"], 0.5, atol=0.1)


def the_loss_falls_with_nothing_chosen(scope):
    # The average still holds a share of its first iterates.
    np.testing.assert_allclose(scope["average"]["w"], [1, -2, 3], atol=0.1)
    np.testing.assert_allclose(scope["average"]["b"], 0.5, atol=0.1)
    assert scope["last"] < 0.1 * scope["first"]


def a_sweep_is_drawn_and_goes_on_from_its_journal(scope):
    assert pathlib.Path("sweep.png").stat().st_size > 0
    done = scope["result"]
    assert done.finished.all()

    def never(learning_rate, key):
        raise AssertionError("a recorded cell was run again")

    rates = [0.01, 0.1, 1.0]
    again = scope["sweep"](never, rates, seeds=3, strategy="python", resume="run.jsonl")
    np.testing.assert_array_equal(again.metrics["loss"], done.metrics["loss"])
    told = scope["found"].info["halving"]
    assert told["share"] == 0.25
    assert len(told["stopped"]) == 7
    assert scope["tried"].finished.shape == (8, 3)
    assert scope["study"].best_params["learning_rate"] in scope["rates"]
    assert [len(curve) for curve in scope["curves"].values()] == [50] * 4
    np.testing.assert_allclose(scope["curves"][0.5, 1][49], 0.5 * 0.25**50, rtol=1e-5)


CLAIMS = {
    "README.md": the_quick_start_finds_the_minimum,
    "error_bar.md": the_bar_is_below_the_noise,
    "guarantees.md": runs_end_where_the_page_says,
    "no_learning_rate.md": the_average_ends_at_the_minimum,
    "nothing_to_choose.md": the_loss_falls_with_nothing_chosen,
    "migrating.md": the_drop_ins_arrive_where_the_others_did,
    "quick_start.md": the_first_network_learns_and_the_rate_matters_little,
    "sweeps.md": a_sweep_is_drawn_and_goes_on_from_its_journal,
}
"""What must hold of a page's names when it has run; short checks stand on the pages themselves."""


def slow_but_the_first(page):
    """What a newcomer reads first is run with the README's tests, the rest with the slow ones."""
    first = page.name in ("README.md", "quick_start.md")
    return pytest.param(page, id=page.name, marks=() if first else pytest.mark.slow)


@pytest.mark.parametrize(
    "page", [slow_but_the_first(page) for page in PAGES if page.name not in ELSEWHERE]
)
def test_the_snippets_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": page.stem}
    for block in blocks(page):
        exec(block, scope)
    CLAIMS.get(page.name, lambda scope: None)(scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target.strip()).exists(), target


def test_a_table_that_differs_from_the_results_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    file = "benchmarks/results/forgotten_average/results.csv"
    page.write_text(f"<!-- table {file} forgotten_average -->\n<!-- end of table -->\n")
    with pytest.raises(SystemExit, match=r"page\.md; run python -m benchmarks\.tables"):
        call(tables, monkeypatch, "--check", page)
    assert page.read_text().count("\n") == 2  # and left as it is
    call(tables, monkeypatch, page)
    call(tables, monkeypatch, "--check", page)


def test_a_figure_of_a_table_written_by_hand_that_is_stale_is_found(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(
        "| size | error | $E\\|x\\|$ |\n|---|---|---|\n| 7 | .031 | 92,700 |\n"
    )
    results = tmp_path / "results.csv"
    monkeypatch.setattr(hand_written, "TABLES", [("page", "| size | error", "results")])
    results.write_text("size,error,norm\n7,0.0314,92650\n")
    assert not hand_written.absent(tmp_path, tmp_path)
    results.write_text("size,error,norm\n7,0.0316,92650\n")
    (line,) = hand_written.absent(tmp_path, tmp_path)
    assert ".031 not in results.csv" in line
    results.write_text("optimizer,seed,error\na,0,0.030\na,1,0.032\n")  # a mean over seeds
    (line,) = hand_written.absent(tmp_path, tmp_path)
    assert ": 92,700 not in" in line


def test_a_claim_that_is_false_is_named():
    def six_is_prime():
        raise AssertionError("two divides it")

    holds = lambda: None
    assert claims.false_ones([holds, six_is_prime]) == ["not so: six is prime (two divides it)"]


def test_what_a_step_costs_is_shown_beside_adam_and_drawn(tmp_path):
    columns = "model,dtype,optimizer,time,gradients,state,peak,compile,milliseconds\n"
    lines = [
        "a,float32,Adam,2.00,1,2.00,4.00,1.50,8.125",
        "a,float32,mu2_auto,3.00,1,2.50,4.00,3.00,9",
    ]
    lines += [line.replace("a,", "b,", 1) for line in lines]
    file = tmp_path / "results.csv"
    file.write_text(columns + "\n".join(lines) + "\n")
    _, (first, _) = cost_tables.beside_adam_rows(file)
    assert first == ["a", "1.50", "1.25", "1.00", "2.0", "8.12 ms"]
    _, (_, ours) = cost_tables.every_step_rows(file)
    assert ours == ["mu2_auto", "1", "2.5", "3.00", "3.00", "3.00"]
    cost_pictures.draw_step_cost(file, tmp_path / "cost.png")
    rows = ["a,SGD,5,1,1,1,1,1", "b,SGD,5,1,1,1,1,1"]
    file.write_text("\n".join(["model,optimizer,all," + ",".join(cost_pictures.PARTS), *rows]))
    cost_pictures.draw_profile(file, tmp_path / "profile.png")
    assert all((tmp_path / f"{name}.png").stat().st_size > 0 for name in ("cost", "profile"))
