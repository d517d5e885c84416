"""The best setting of every optimizer, as a line of Python to copy."""

from collections.abc import Mapping
from html import escape

from mu2_optax.sweep._analysis.metrics import Mode, in_words, is_flat
from mu2_optax.sweep._analysis.summary import Summary, number_text, rate_text
from mu2_optax.sweep._report.looks import Looks
from mu2_optax.sweep._results.result import SweepResult

RATE = "{learning_rate}"  # where the learning rate goes in `info["python"]`


def best_rates(summary: Summary, mode: Mode) -> dict[str, float]:
    """The rate with the best mean, for each row that has one."""
    places = {label: row.tuned(mode) for label, row in summary.rows.items()}
    return {label: float(summary.rates[i]) for label, i in places.items() if i is not None}


def best_values(summary: Summary, mode: Mode) -> dict[str, float]:
    """The best mean of each row that has one."""
    tuned = {label: (row.means, row.tuned(mode)) for label, row in summary.rows.items()}
    return {label: float(means[i]) for label, (means, i) in tuned.items() if i is not None}


def best_settings(
    results: Mapping[str, SweepResult], looks: Looks, metric: str, mode: Mode, summary: Summary
) -> str:
    """The best rate of each result, what it gives, and the line that makes it."""
    best = best_rates(summary, mode)
    items = ""
    for label, rate in best.items():
        result, row = results[label], summary.rows[label]
        mean = float(row.means[summary.rates == rate][0])
        at = " without a learning rate" if row.flat else f" at {rate_text(rate)}"
        place = row.untouched
        if place is not None and not row.flat and summary.rates[place] != rate:
            steps, default = row.stopped[place], rate_text(summary.rates[place])
            value = f"stopped after {steps} steps" if steps else row.texts()[place]
            at += f"; {value} at the published default, {default}"
        line = escape(python_line(result, label, rate))
        items += (
            f"<li><p>{looks[label].key()}<b>{escape(label or 'This sweep')}</b> "
            f"{escape(in_words(metric))} {number_text(mean)}{at}</p>"
            f'<pre class="copied"><code>{line}</code></pre></li>'
        )
    if not items:
        return ""
    return (
        f'<h2>The best setting of each</h2><ul class="settings">{items}</ul>'
        f'<p class="facts">The learning rate of the grid with the best mean of '
        f"{escape(in_words(metric))} over the seeds.</p>"
    )


def python_line(result: SweepResult, label: str, rate: float) -> str:
    """The constructor's call at a learning rate, or the rate alone if no constructor is known."""
    template = result.info.get("python")
    if isinstance(template, str):
        return template.replace(RATE, repr(rate))
    comment = " ".join(label.split())
    if is_flat(result):
        return f"# {comment or 'this sweep'}: no learning rate to choose"
    return f"learning_rate = {rate!r}{f'  # {comment}' if comment else ''}"
