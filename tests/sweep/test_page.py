"""The page that `write_report` writes: what is on it, and that it needs nothing else."""

import html
import json
import re

import numpy as np

from mu2_optax.sweep import SweepResult, write_report

INFO = {
    "command": "mu2-sweep --steps 5",
    "date": "2026-01-02T03:04:05+00:00",
    "versions": {"jax": "9.9"},
    "python": "optax.sgd(learning_rate)",
    "curve_steps": [0, 10, 20],
    "untouched": 0.1,
}


def runs(label="sgd", error="ValueError: no luck"):
    """SGD at four rates, where one diverged and one failed, and an optimizer without a rate."""
    losses = np.array([[0.5, 0.7], [0.1, 0.3], [np.nan, 1.0], [np.nan, np.nan]])
    curves = np.linspace(2.0, 1.0, 3) * np.ones((4, 2, 1))
    metrics = {"loss": losses, "test_loss_curve": curves}
    rates, finished = np.array([0.1, 1.0, 10.0, 100.0]), np.ones((4, 2), bool)
    errors = dict.fromkeys([(3, 0), (3, 1)], error)
    swept = SweepResult(
        metrics, {"learning_rate": rates}, np.arange(2), finished, errors, label, INFO
    )
    flat = {"loss": np.array([0.2, 0.3]), "test_loss_curve": curves[0]}
    auto = SweepResult(flat, {}, np.arange(2), np.ones(2, bool), label="auto")
    return [swept, auto]


def written(tmp_path, results, metric="loss", **options):
    write_report(tmp_path / "report.html", results, metric, **options)
    return (tmp_path / "report.html").read_text("utf-8")


def specs(page):
    """The charts of a page."""
    return json.loads(re.search(r"^const specs = (.*), colors = ", page, re.MULTILINE)[1])


def without_library(page):
    return re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.DOTALL)


def text_of(page):
    """What a reader sees, without charts."""
    body = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_page_has_verdict_table_python_and_facts(tmp_path):
    text = text_of(written(tmp_path, runs(), title="My sweep"))
    assert (
        "2 optimizers · 4 rates · 2 seeds · 10 of 10 cells finished, 1 diverged, 2 failed" in text
    )
    assert "Nothing chosen: auto .250." in text
    assert "Best of the others untouched: sgd .600; tuned: sgd .200, at 1." in text
    assert "sgd loss .200 at 1; .600 at the published default, 0.1 optax.sgd(1.0)" in text
    assert "auto loss .250 without a learning rate # no learning rate to choose" in text
    assert "0.1 1 10 100 plateau ratio" in text
    assert "sgd .600 .200 div err 0.0 0.0 … 0.0" in text
    assert "sgd: ValueError: no luck" in text
    assert "mu2-sweep --steps 5 date 2026-01-02 versions jax 9.9" in text
    assert "within 1.5 of the table's best" in text_of(written(tmp_path, runs(), tolerance=1.5))


def test_page_has_the_charts_of_rates_and_curves(tmp_path):
    page = written(tmp_path, runs())
    rates, curves = specs(page)
    assert page.count('<div class="chart"></div>') == 2
    assert rates["width"] == curves["width"] == "container"
    points = [p for p in curves["data"]["values"] if p["line"] == "sgd"]
    assert [p["x"] for p in points] == [0, 10, 20]
    assert [p["y"] for p in points] == [2, 1.5, 1]
    assert "Test loss over steps" in text_of(page)


def test_page_needs_no_network(tmp_path):
    page = written(tmp_path, runs())
    assert "window.vegaEmbed" in page  # the library is inside
    assert not re.search(r"(src|href)=", without_library(page))
    assert "default-src 'none'" in page
    assert len(page) < 1_200_000


def test_page_escapes_names(tmp_path):
    page = written(tmp_path, runs("</script><b>x</b>", "<img src=x>"))
    body = without_library(page)
    assert "<b>x</b>" not in body
    assert "<img" not in body
    assert "&lt;/script&gt;&lt;b&gt;x" in body
    assert any(p["line"] == "</script><b>x</b>" for p in specs(page)[0]["data"]["values"])


def test_page_of_a_sweep_that_diverged_everywhere_or_has_not_run(tmp_path):
    (swept, _) = runs()
    swept.metrics["loss"][:] = np.nan
    text = text_of(written(tmp_path, swept))
    assert "div div div err" in text
    assert "best setting" not in text
    swept.finished[:] = False
    swept.errors.clear()
    assert "0 of 8 cells finished" in text_of(written(tmp_path, swept))
