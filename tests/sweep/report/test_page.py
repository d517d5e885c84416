"""The page that `write_report` writes: what is on it, and that names cannot break out of it."""

import re
from dataclasses import replace

import browser
import numpy as np
import pytest
from mu2_optax.sweep._report.svg import Axis, decades, round_numbers
from sweep.report.pages import NASTY, RATES, Page, result, results, without_rate

from mu2_optax.sweep import SweepResult, write_report


def report(tmp_path, of=None, metric="test_accuracy", **options):
    write_report(of or results(), metric, tmp_path / "report.html", **options)
    return (tmp_path / "report.html").read_text("utf-8")


def test_every_finite_cell_is_a_dot_that_says_its_rate_seed_and_value(tmp_path):
    text = report(tmp_path)
    first = text[: text.index('<div class="plot zoom">')]
    tooltips = re.findall(r'<path class="dot"[^>]*><title>([^<]*)</title>', first)
    assert len(tooltips) == 5 * 3 + 3 * 3
    assert "flat\nlearning rate 0.1, seed 7\ntest accuracy 0.92" in tooltips
    assert "steep\nlearning rate 1, seed 0\ntest accuracy 0.91" in tooltips
    crosses = re.findall(r"×<title>([^<]*)</title>", first)
    assert crosses == [
        f"steep\nlearning rate {rate}, 3 of 3 seeds\ntest accuracy not finite: diverged"
        for rate in (10, 100)
    ]


def test_dots_are_where_their_values_are(tmp_path):
    dots = Page(report(tmp_path, {"flat": results()["flat"]})).all("svg", "at")
    places = [(float(d["x"][:-1]), float(d["y"][:-1])) for d in dots[:15]]
    columns = sorted({x for x, _ in places})
    np.testing.assert_allclose(np.diff(columns), np.diff(columns)[0], atol=0.02)  # decades
    heights = [y for _, y in places[:3]]  # seeds 0, 1, 7 at the lowest rate, downwards from the top
    assert heights == sorted(heights, reverse=True)
    assert heights[0] == max(y for _, y in places)
    assert all(0 < x < 100 and 0 < y < 100 for x, y in places)


def test_the_table_says_what_is_near_the_best_and_what_diverged(tmp_path):
    page = Page(report(tmp_path))
    assert page.texts.count("div") == 2
    assert len(page.all("td", "near")) == 4 + 1  # 0.91 at four rates, 0.92 is the best
    assert len(page.all("tr", "widest")) == 1
    headline = " ".join(" ".join(page.texts).split())
    assert "flat has the widest plateau: 3.0 decades of learning rates, from 0.1 to 100" in headline
    assert "within 0.02 of the best test accuracy, .920." in headline


def test_each_measure_is_explained_and_the_sensitivity_only_where_it_is_known(tmp_path):
    page = Page(report(tmp_path))
    assert page.all("dt")
    assert {"plateau", "ratio"} <= set(page.texts)
    assert "sensitivity" not in page.texts
    assert "sensitivity" in Page(report(tmp_path, initial=0.1)).texts
    assert "sensitivity" in Page(report(tmp_path, metric="train_loss")).texts


def test_curves_are_drawn_at_the_best_rate_and_at_every_other(tmp_path):
    text = report(tmp_path)
    page = Page(text)
    plots = page.all("div", "switched")
    assert len(plots) == 1 + 5
    assert [("shown" in plot["class"]) for plot in plots] == [True] + [False] * 5
    assert "Best rates: flat 0.1, steep 1." in text
    assert "steep\nlearning rate 1, step 50\nmean train loss 0.08" in text
    assert "Train loss over steps" in page.texts
    assert not Page(report(tmp_path, {"a": result("a", [1.0] * 5)})).all("select")


def test_curves_are_drawn_at_the_steps_that_are_known(tmp_path):
    steps = {"curve_steps": list(range(0, 500, 10))}
    text = report(tmp_path, result("a", [0.5] * 5, curve=True, **steps))
    assert "a\nlearning rate 0.01, step 490\nmean train loss 0.49" in text
    assert "step, as recorded" not in text
    others = report(tmp_path, result("a", [0.5] * 5, curve=True, curve_steps=[1, 2]))
    assert "step, as recorded" in others  # not those of this curve


def test_what_lies_on_each_other_near_the_best_is_drawn_again_enlarged(tmp_path):
    low = result("c", [0.1, 0.2, 0.3, 0.4, 0.5])
    text = report(tmp_path, results() | {"c": low})
    figure = text[: text.index("</figure>")]
    (zoom,) = re.findall(r'<div class="plot zoom">.*?</div>', figure, re.DOTALL)
    labels = re.findall(r'<path class="dot"[^>]*><title>([^\n]*)', zoom)
    assert labels.count("flat") == 4 * 3  # three times 0.02 below the best, 0.92
    assert labels.count("steep") == 3
    assert labels.count("c") == 0
    assert 'overflow="hidden"' in zoom  # the lines leave the chart at its edge
    assert "×" not in zoom
    places = [float(y) for y in re.findall(r'class="at" x="[^"]*" y="([^"]*)%"', zoom)]
    # From the best seed, 0.93, to three times 0.02 below the best mean, 0.92, with margins of 3 %.
    # Places are percents of the chart, written with two digits behind the point.
    assert max(places) == pytest.approx(
        100 * (0.03 + (0.93 - 0.90) / (0.93 - 0.86)) / 1.06, abs=0.01
    )
    assert min(places) == pytest.approx(100 * 0.03 / 1.06, abs=0.01)


def test_a_picture_that_shows_all_of_it_is_drawn_once(tmp_path):
    alone = {"steep": results()["steep"]}
    assert "plot zoom" not in report(tmp_path, alone).partition("</figure>")[0]
    close = {name: result(name, [0.9, 0.91, 0.9, 0.91, 0.9]) for name in "ab"}
    assert "plot zoom" not in report(tmp_path, close)


def test_the_best_setting_is_a_line_of_python(tmp_path):
    known = result("steep", [0.5, 0.8, 0.91, np.nan, np.nan], python="optax.sgd({learning_rate})")
    free = without_rate("free", 0.9, python="mu2_optax.mu2_auto()")
    own = result("of\nmy own", [0.9, 0.5, 0.5, 0.5, 0.5])
    lost = result("lost", [np.nan] * 5, python="optax.adam({learning_rate})")
    text = report(tmp_path, [known, free, own, lost])
    lines = re.findall(r'<pre class="copied"><code>([^<]*)</code></pre>', text)
    assert lines == ["optax.sgd(1.0)", "mu2_optax.mu2_auto()", "learning_rate = 0.01  # of my own"]
    for line in lines[2:]:
        compile(line, "report", "exec")
    words = " ".join(" ".join(Page(text).texts).split())
    assert "steep test accuracy .920 at 1 optax" in words
    assert "free test accuracy .910 without a learning rate" in words
    assert "free , which has no learning rate, reaches a test accuracy of .910." in words
    assert "48 cells" in words  # three are without a rate, though their line goes over all rates
    low = report(tmp_path, [known], mode="min")
    assert "optax.sgd(0.01)" in low


def test_the_published_default_has_a_ring_and_its_value_stands_beside_the_best(tmp_path):
    text = report(tmp_path, [result("a", [0.5, 0.8, 0.91, 0.1, 0.1], untouched=0.1)])
    (tooltip,) = re.findall(r'<path class="ring"[^>]*><title>([^<]*)</title>', text)
    assert tooltip == "a\nlearning rate 0.1, the published default\nmean test accuracy 0.81"
    assert "test accuracy .920 at 1; .810 at the published default, 0.1" in text
    assert "A ring is around" in text
    halved = result("a", [np.nan, 0.8, 0.91, 0.1, 0.1], untouched=0.01)
    halved.finished[0], halved.info["halving"] = False, {"stopped": [[0.01, 27]]}
    stopped = "test accuracy .920 at 1; stopped after 27 steps at the published default, 0.01"
    assert stopped in report(tmp_path, [halved])
    assert "A ring is around" not in report(tmp_path)


def test_a_table_too_wide_for_paper_goes_on_below_itself(tmp_path):
    assert not Page(report(tmp_path)).all("div", "unprinted")
    rates = np.geomspace(1e-4, 1e4, 30)
    values = np.linspace(0.1, 0.9, 30)[:, None] + np.zeros(3)
    wide = SweepResult({"test_accuracy": values}, {"learning_rate": rates}, np.arange(3),
                       np.ones((30, 3), bool), label="a")  # fmt: skip
    text = report(tmp_path, wide)
    printed = re.search(r'<div class="printed">(.*?)</div>', text)[1]
    tables = printed.split("</table>")[:-1]
    assert len(tables) == 3
    assert all(table.count('scope="row"') == 1 for table in tables)
    assert max(table.count('scope="col"') for table in tables) <= 13
    screen = re.search(r'<div class="unprinted"><div class="scroll">(.*?)</div>', text)[1]
    assert re.findall("<td.*?</td>", printed) == re.findall("<td.*?</td>", screen)


def test_the_page_says_what_diverged_and_why(tmp_path):
    failed = {(4, j): "ValueError: no luck" for j in range(3)}
    page = Page(report(tmp_path, {"a": result("a", [0.5] * 4 + [np.nan], errors=failed)}))
    assert "ValueError: no luck" in page.texts
    assert "0, 1, 7" in page.texts
    finite = Page(report(tmp_path, {"a": result("a", [0.5] * 5)}))
    assert "Nothing: every finished cell has finite metrics." in finite.texts


def test_the_page_says_how_it_was_run(tmp_path):
    machine = {"architecture": "x86_64", "cores": 2, "device": "cpu", "devices": 1}
    run = {"strategy": "vmap", "compile_seconds": 1.25, "run_seconds": 30.0, "machine": machine,
           "versions": {"jax": "0.10"}, "context": {"radius": 3.0}}  # fmt: skip
    run["date"] = "2026-02-03T04:05:06+00:00"
    page = Page(report(tmp_path, result("a", [0.5] * 5, **run), command="mu2-sweep --lrs '1,2'"))
    assert "2026-02-03 04:05 UTC" in page.texts
    assert any(text.endswith("0 diverged · 2026-02-03 04:05 UTC") for text in page.texts)
    for text in ("mu2-sweep --lrs '1,2'", "jax 0.10", "x86_64, 2 cores, 1 × cpu", "radius = 3.0",
                 "vmap", "1.2 s", "30.0 s"):  # fmt: skip
        assert text in page.texts
    later = result("b", [0.5] * 5, date="2026-02-05T00:00:00+00:00", command="mu2-sweep again")
    page = Page(report(tmp_path, [result("a", [0.5] * 5, **run), later]))
    assert {"2026-02-03 to 2026-02-05", "mu2-sweep again"} <= set(page.texts)


def test_a_label_looks_the_same_on_every_page(tmp_path):
    def look(text, label):
        name = re.search(rf'<g class="line (s\d+)" data-label="{label}">', text)[1]
        light, dark = re.findall(rf"\.{name}\{{(.*?)\}}", text)
        return light, dark

    alone, among = report(tmp_path, {"flat": results()["flat"]}), report(tmp_path)
    assert look(alone, "flat") == look(among, "flat")
    assert look(among, "flat") != look(among, "steep")


def test_names_are_text_whatever_they_hold(tmp_path):
    bad = result(NASTY, [0.5] * 4 + [np.nan], metric=f"loss {NASTY}", curve=True,
                 errors={(4, 0): NASTY}, context={NASTY: NASTY})  # fmt: skip
    text = report(tmp_path, bad, f"loss {NASTY}", mode="min", title=NASTY, command=NASTY)
    page = Page(text)
    assert not page.all("i")
    assert len(page.all("script")) == 1
    assert text.count("</script>") == 1
    assert NASTY in page.texts
    assert page.all("button")[0]["data-label"] == NASTY
    names = {name for _, attributes in page.elements for name in attributes}
    assert not any(name.startswith("on") or "'" in name or '"' in name for name in names)


def test_nothing_is_loaded_and_the_page_forbids_it(tmp_path):
    text = report(tmp_path)
    page = Page(text)
    assert not [a for _, a in page.elements if {"src", "href"} & a.keys()]
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_a_report_can_be_written_of_what_has_not_finished_and_of_what_never_worked(tmp_path):
    partial = results()["flat"]
    partial.finished[3:] = False
    assert "9 of 15 cells finished" in report(tmp_path, partial)
    lost = result("a", [np.nan] * 5, curve=True)
    assert "15 diverged" in report(tmp_path, lost)
    assert "15 diverged" in report(tmp_path, lost, "train_loss")
    from_zero = result("a", [0.5] * 5)
    from_zero.axes["learning_rate"] = np.array([0.0, 0.1, 1.0, 10.0, 100.0])
    text = report(tmp_path, from_zero)
    assert "rates above 0" in text
    assert "learning rate 0, seed" not in text  # which has no place on the axis
    extreme = result("a", [0.5, 1e-300, 1e-20, 1e20, 1e300], metric="loss")
    extreme.metrics["loss"] -= np.array([0.0, 0.01, 0.02])
    extreme.metrics["loss"] = np.maximum(extreme.metrics["loss"], 1e-300)
    assert "nan%" not in report(tmp_path, extreme, "loss")
    single = result("", [0.5] * 5)
    assert "This sweep has a plateau: 4.0 decades" in report(tmp_path, single)


def test_a_report_can_be_written_of_what_has_not_begun(tmp_path):
    nothing = SweepResult({}, {"learning_rate": RATES}, np.arange(3), np.zeros((5, 3), bool))
    text = report(tmp_path, {"a": nothing})
    assert "0 of 15 cells finished" in text
    assert Page(text).texts.count("--") == 5 + 2 + 3  # the means, the measures, how it was run
    some = report(tmp_path, results() | {"a": nothing})
    assert "flat</b> has the widest plateau" in some
    assert some.count("<select") == 1  # the curves of the others


@pytest.mark.parametrize("curve", [False, True])
def test_a_report_can_be_written_of_the_largest_numbers_there_are(tmp_path, curve):
    extreme = result("a", [0.5] * 5, metric="loss", curve=curve)
    for array in extreme.metrics.values():
        array[:] = 1e308
        array[1] = -1e308
        array[2] = 0.0
    text = report(tmp_path, extreme, "loss")
    assert "0 diverged" in text
    assert not re.search(r"(nan|inf)%|points=\"[^\"]*(nan|inf)", text)
    assert "1.0e308" in text


def test_several_widest_plateaus_are_all_named_and_none_where_there_is_none(tmp_path):
    flat = {name: result(name, [0.9] * 5) for name in "abc"}
    page = Page(report(tmp_path, flat | {"d": result("d", [0.9] + [0.1] * 4)}))
    headline = " ".join(" ".join(page.texts).split())
    assert "a , b and c have the widest plateaus: 4.0 decades of learning rates are" in headline
    assert len(page.all("tr", "widest")) == 3
    steep = {name: result(name, [0.9] + [0.1] * 4) for name in "ab"}
    page = Page(report(tmp_path, steep))
    assert "the learning rate decides" in " ".join(page.texts)
    assert not page.all("tr", "widest")


def test_the_seeds_of_a_rate_may_be_lost_for_different_reasons(tmp_path):
    mixed = result("a", [0.5] * 5, errors={(4, 0): "ValueError: no luck"})
    mixed.metrics["test_accuracy"][4] = np.nan
    texts = Page(report(tmp_path, {"a": mixed})).texts
    assert texts[texts.index("ValueError: no luck") - 1] == "0"
    assert texts[texts.index("not finite: test_accuracy") - 1] == "1, 7"
    assert "2 diverged · 1 failed" in " ".join(texts)


def test_results_that_can_be_read_only_once_are_counted(tmp_path):
    text = report(tmp_path, iter(results().values()))
    assert "2 optimizers · 5 learning rates · 3 seeds · 30 cells" in text


def test_results_over_other_rates_share_a_table(tmp_path):
    low, high = results()["flat"], results()["steep"]
    high = SweepResult(high.metrics, {"learning_rate": RATES * 100}, high.seeds, high.finished)
    page = Page(report(tmp_path, {"low": low, "high": high}))
    assert len(page.all("td", "none")) == 2 + 2  # rates that one of them has not been run at
    assert "1e4" in page.texts


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html, got 'report.txt'"):
        write_report(results(), "test_accuracy", "report.txt")
    with pytest.raises(ValueError, match="`results` is empty"):
        write_report([], "test_accuracy", tmp_path / "report.html")
    with pytest.raises(KeyError, match="no metric 'accuracy' in this sweep; it has"):
        write_report(results(), "accuracy", tmp_path / "report.html")
    zero = SweepResult({"loss": np.ones((1, 1))}, {"learning_rate": np.zeros(1)}, np.arange(1),
                       np.ones((1, 1), bool))  # fmt: skip
    with pytest.raises(ValueError, match="needs a learning rate above 0"):
        write_report(zero, "loss", tmp_path / "report.html")
    two = SweepResult({"loss": np.ones((1, 1, 1))}, {"learning_rate": np.ones(1),
                      "beta": np.ones(1)}, np.arange(1), np.ones((1, 1, 1), bool))  # fmt: skip
    with pytest.raises(ValueError, match=r"over `learning_rate` alone.*result\.select"):
        write_report(two, "loss", tmp_path / "report.html")


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.7, 12), (0.981, 0.9826), (1e-9, 2e-9), (0, 1e6), (5, 5)]
)
def test_ticks_are_few_and_inside(low, high):
    ticks = round_numbers(low, high)
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in ticks)
    assert len(ticks) <= 11
    assert len(ticks) >= (3 if high > low else 1)


@pytest.mark.parametrize(("low", "high"), [(1e-4, 1e4), (0.3, 40), (1.1, 1.9), (1e-30, 1e30)])
def test_ticks_of_a_logarithmic_axis_are_few_and_inside(low, high):
    ticks = Axis("rate", low, high, log=True).marks()
    assert ticks == sorted(decades(low, high))
    assert len(ticks) <= 10
    assert all(low <= tick <= high for tick in ticks)


# In a browser

needs_browser = pytest.mark.skipif(
    browser.PROGRAM is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed"
)
SHOWN = "document.querySelector('.tip').textContent"
PLACE = """(() => {{
  const box = document.querySelectorAll({!r})[{}].getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}})()"""


@pytest.mark.slow
@needs_browser
def test_in_a_browser_it_opens_from_disk_and_says_what_is_under_the_mouse(tmp_path):
    report(tmp_path, title=NASTY)
    page = tmp_path / "report.html"
    with browser.Browser() as tab:
        tab.open(page)
        assert tab.run("document.title") == NASTY
        assert tab.run(SHOWN) == ""
        x, y = tab.run(PLACE.format(".line[data-label=flat] .dot", 7))
        tab.move(x + 2, y)
        assert tab.run(SHOWN) == "flat\nlearning rate 1, seed 1\ntest accuracy 0.91"
        assert tab.run("getComputedStyle(document.querySelector('.tip')).display") != "none"
        x, y = tab.run(PLACE.format(".cross", 0))
        tab.move(x, y)
        assert tab.run(SHOWN).endswith("diverged")
        tab.move(5, 5)
        assert tab.run(SHOWN) == ""
        tab.run("document.querySelector('.copied button').click()")
        assert tab.run("document.querySelector('.copied button').textContent") in (
            "copy", "copied", "selected")  # fmt: skip
        # The keyboard goes from value to value; a name hides its line; a rate chooses the curves.
        tab.run("document.querySelector('.chart').focus()")
        tab.press("ArrowRight")
        assert tab.run(SHOWN).startswith("flat\nlearning rate 0.01, seed 0")
        tab.run("document.querySelector('.legend button').click()")
        hidden = (
            "[...document.querySelectorAll('figure')].map(f => f.querySelectorAll('.off').length)"
        )
        assert tab.run(hidden)[0] == 4  # the line and its dots, in the whole and enlarged
        assert sum(tab.run(hidden)[1:]) == 0
        tab.run("""(() => { const s = document.querySelector('select'); s.value = '3';
                   s.dispatchEvent(new Event('change')); })()""")
        assert tab.run("document.querySelector('.switched.shown').dataset.choice") == "3"
        assert tab.problems == []
        assert set(tab.loaded) == {page.as_uri()}


@pytest.mark.slow
@needs_browser
def test_in_a_browser_it_fits_a_phone_is_dark_at_night_and_prints_in_light_colours(tmp_path):
    swept = results()
    swept["a" * 50] = result("a" * 50, [0.9] * 5, python=f"optax.sgd({'1' * 90})")
    swept["b"] = replace(result("b", [0.9] * 5), axes={"learning_rate": 2 * RATES})
    for one in swept.values():
        one.metrics["test_loss"] = one.metrics["test_accuracy"]
    report(tmp_path, swept, command="mu2-sweep " + "x" * 200)
    page = tmp_path / "report.html"
    ground = "getComputedStyle(document.body).backgroundColor"
    with browser.Browser() as tab:
        tab.open(page)
        light = tab.run(ground)
        tab.open(page, width=360, height=740, phone=True, dark=True)
        assert tab.run("document.documentElement.scrollWidth") <= 360
        assert tab.run(ground) != light
        small = "Math.min(...[...document.querySelectorAll('.tick')].map(" \
                "t => parseFloat(getComputedStyle(t).fontSize)))"  # fmt: skip
        assert tab.run(small) >= 11  # texts do not shrink with the picture
        pdf = tab.pdf()
        assert pdf.startswith(b"%PDF-")
        assert len(pdf) > 10_000
        tab.call("Emulation.setEmulatedMedia", media="print",
                 features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
        assert tab.run(ground) == light
        # On paper everything is there: what is folded away, and the curves at every rate.
        tall = "[...document.querySelectorAll({!r})].map(e => e.getBoundingClientRect().height)"
        assert min(tab.run(tall.format("details .chart"))) > 100
        assert min(tab.run(tall.format(".switched .chart"))) > 100
        assert max(tab.run(tall.format("select, .copied button"))) == 0
        assert max(tab.run(tall.format(".tick.wide"))) == 0  # it would cover its neighbour
        assert tab.problems == []
