"""The lists and tables of a report: best settings, measures, what diverged, how it was run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np

from mu2_optax.sweep._analysis.metrics import as_heading, in_words, is_flat
from mu2_optax.sweep._analysis.styles import Look, Looks
from mu2_optax.sweep._analysis.summary import Summary, number_text, rate_text
from mu2_optax.sweep._results.result import SweepResult

ON_PAPER = 13  # columns of a table that fit
_RATE = "{learning_rate}"  # where the learning rate goes in `info["python"]`


def best_settings(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> str:
    """The best rate of each result, what it gives, and the line that makes it."""
    name, items = escape(in_words(summary.metric)), ""
    for label, rate in summary.best_rates.items():
        result, row = results[label], summary.rows[label]
        mean = float(row.means[summary.rates == rate][0])
        at = " without a learning rate" if row.flat else f" at {rate_text(rate)}"
        place = row.untouched
        if place is not None and not row.flat and summary.rates[place] != rate:
            steps, default = row.stopped[place], rate_text(summary.rates[place])
            value = f"stopped after {steps} steps" if steps else row.texts[place]
            at += f"; {value} at the published default, {default}"
        line = escape(python_line(result, label, rate))
        items += (
            f"<li><p>{looks[label].key()}<b>{escape(label or 'This sweep')}</b> "
            f"{name} {number_text(mean)}{at}</p>"
            f'<pre class="copied"><code>{line}</code></pre></li>'
        )
    if not items:
        return ""
    return (
        f'<h2>The best setting of each</h2><ul class="settings">{items}</ul>'
        f'<p class="facts">The learning rate of the grid with the best mean of {name} over the '
        "seeds.</p>"
    )


def python_line(result: SweepResult, label: str, rate: float) -> str:
    """The constructor's call at a learning rate, or the rate alone if no constructor is known."""
    template = result.info.get("python")
    if isinstance(template, str):
        return template.replace(_RATE, repr(rate))
    comment = " ".join(label.split())
    if is_flat(result):
        return f"# {comment or 'this sweep'}: no learning rate to choose"
    return f"learning_rate = {rate!r}{f'  # {comment}' if comment else ''}"


def table(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> str:
    """The metric's mean at each rate and the measures; what is near the best is shaded."""
    measures = ["plateau", "ratio", *(["sensitivity"] if _has_sensitivity(summary) else [])]
    names = [rate_text(rate) for rate in summary.rates] + measures
    rows = [_row(looks[label], results[label], summary, label) for label in summary.rows]
    star = " ★: the widest plateau." if len(results) > 1 and summary.widest else ""
    rule = f" ({summary.rule})" if summary.rule else ""
    failed = any("err" in row.texts for row in summary.rows.values())
    halved = any(row.stopped.any() for row in summary.rows.values())
    stopped = "@27: stopped by halving, after 27 steps; " if halved else ""
    return (
        f"<h2>{escape(as_heading(summary.metric))} at each learning rate</h2>"
        f"{wide_table(names, rows)}"
        f'<p class="facts">Means over seeds. <span class="near">Shaded</span>: within '
        f"{summary.reach} of the table's best{rule}; div: a seed diverged; "
        f"{'err: a seed failed; ' if failed else ''}{stopped}--: not finished.{star}</p>"
    )


def wide_table(names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A table that scrolls on a screen, and continues below itself on paper.

    Each row is its head, with its ``<tr>``, and its cells.
    """

    def part(start: int, stop: int) -> str:
        heads = "".join(f'<th scope="col">{name}</th>' for name in names[start:stop])
        body = "".join(f"{head}{''.join(cells[start:stop])}</tr>" for head, cells in rows)
        return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"

    whole = f'<div class="scroll">{part(0, len(names))}</div>'
    if len(names) <= ON_PAPER:
        return whole
    parts = "".join(part(i, i + ON_PAPER) for i in range(0, len(names), ON_PAPER))
    return f'<div class="unprinted">{whole}</div><div class="printed">{parts}</div>'


def meanings(summary: Summary) -> str:
    """Each measure in a sentence."""
    name = escape(in_words(summary.metric))
    perfect = "0" if summary.mode == "min" else "1"
    told = {
        "plateau": "The width, in decades, of the widest run of neighbouring learning rates whose "
        f"{name} is within {summary.reach} of the best in the table; 3.0 means that "
        "the learning rate may be wrong by a factor of a thousand.",
        "ratio": "The largest over the smallest learning rate whose distance from a perfect score "
        f"({perfect}, or the best seen if that is better) is at most twice the row's own best: how "
        "far this optimizer may be from its own best rate.",
    }
    if _has_sensitivity(summary):
        told["sensitivity"] = (
            f"The mean over all learning rates of how much worse {name} is than at the row's best "
            "rate, where nothing counts as worse than before training; 0 means that the learning "
            "rate does not matter."
        )
    items = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in told.items())
    return (
        f"<h2>The measures</h2><dl>{items}</dl>"
        '<p class="facts">Small numbers are bootstrap intervals (95 %) over the seeds; with few '
        "seeds they are coarse. A rate at which a seed diverged counts as the worst possible. All "
        "measures see only the rates of the grid.</p>"
    )


def divergence(results: Mapping[str, SweepResult]) -> str:
    """Every rate at which a cell diverged or failed, and why."""
    rows = ""
    for label, result in results.items():
        bad = {name: result.diverged(name) for name in result.metrics}
        rates: dict[tuple[str, str], list[str]] = {}  # by the seeds and the reason
        for i, lost in enumerate(result.diverged()):
            seeds: dict[str, list[str]] = {}  # by the reason
            for j in np.flatnonzero(lost).tolist():
                names = ", ".join(name for name, where in bad.items() if where[i, j])
                why = result.errors.get((i, j)) or f"not finite: {names}"
                seeds.setdefault(why, []).append(str(result.seeds[j]))
            for why, own in seeds.items():
                rate = "none" if is_flat(result) else rate_text(result.learning_rates[i])
                rates.setdefault((", ".join(own), why), []).append(rate)
        for (listed, why), where in rates.items():
            rows += (
                f'<tr><th scope="row">{escape(label)}</th>'
                f'<td class="figure">{", ".join(dict.fromkeys(where))}</td>'
                f"<td>{listed}</td><td>{escape(why)}</td></tr>"
            )
    if not rows:
        return "<h2>What diverged</h2><p>Nothing: every finished cell has finite metrics.</p>"
    return (
        '<h2>What diverged</h2><div class="scroll"><table class="text"><thead><tr><th></th>'
        '<th scope="col">learning rate</th><th scope="col">seeds</th><th scope="col">why</th></tr>'
        "</thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def history(results: Mapping[str, SweepResult], command: str | None) -> str:
    """The command, the date, the versions, the machine and the time."""
    facts = run_facts(results.values())
    said = command or facts.pop("command", "")
    shown = f"<pre>{escape(said)}</pre>" if said else ""
    facts.pop("command", None)
    listed = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    rows = "".join(
        f'<tr><th scope="row">{escape(label or "sweep")}</th>'
        f"<td>{escape(str(result.info.get('strategy', '--')))}</td>"
        f"<td>{_seconds(result.info.get('compile_seconds'))}</td>"
        f"<td>{_seconds(result.info.get('run_seconds'))}</td></tr>"
        for label, result in results.items()
    )
    return (
        f'<h2>How it was run</h2>{shown}<dl>{listed}</dl><div class="scroll"><table><thead><tr>'
        '<th></th><th scope="col">strategy</th><th scope="col">compiling</th>'
        f'<th scope="col">running</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def run_facts(results: Iterable[SweepResult]) -> dict[str, str]:
    """What ``info`` says about a run, as text; what it does not say is left out."""
    infos = [result.info for result in results]
    facts = {
        "command": _distinct(str(info.get("command") or "") for info in infos),
        "date": _dates(infos),
        "versions": _distinct(
            ", ".join(
                f"{name} {version}"
                for name, version in (info.get("versions") or {"jax": info.get("jax")}).items()
                if version
            )
            for info in infos
        ),
        "machine": _distinct(_machine(info.get("machine") or {}) for info in infos),
        "context": _distinct(
            ", ".join(f"{k} = {v}" for k, v in (info.get("context") or {}).items())
            for info in infos
        ),
    }
    return {name: text for name, text in facts.items() if text}


def count(number: int, thing: str) -> str:
    """A number of things.

    Examples:
      >>> count(1, "seed"), count(3, "seed")
      ('1 seed', '3 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _has_sensitivity(summary: Summary) -> bool:
    return any(row.sensitivity is not None for row in summary.rows.values())


def _row(look: Look, result: SweepResult, summary: Summary, label: str) -> tuple[str, list[str]]:
    """The head of a result's row, and its cells."""
    row, name = summary.rows[label], label or in_words(summary.metric)
    cells = []
    for mean, finished, text in zip(row.means.tolist(), row.finished, row.texts, strict=True):
        near = abs(mean - summary.best) <= summary.tolerance * (1 + 1e-6)
        kind = "near" if near else "" if isfinite(mean) else "lost" if finished else "none"
        cells.append(f'<td class="{kind}">{text}</td>')
    several = len(result.seeds) > 1
    cells.append(_measured(row.plateau, "{:.1f}".format, several))
    cells.append(_measured(row.stable, rate_text, several))
    if _has_sensitivity(summary):
        cells.append(_measured(row.sensitivity, number_text, several))
    widest = ' class="widest"' if label in summary.widest and len(summary.rows) > 1 else ""
    free = '<span class="interval">no learning rate</span>' if row.flat else ""
    return f'<tr{widest}><th scope="row">{look.key()}{escape(name)}{free}</th>', cells


def _measured(measure: Any, text: Callable[[float], str], several: bool) -> str:
    """A measure, and its interval where there are several seeds to take it over."""
    if measure is None:
        return '<td class="none">--</td>'
    low, high = (text(end) for end in measure.interval)
    interval = f'<span class="interval">{low} … {high}</span>' if several else ""
    return f"<td>{text(measure.value)}{interval}</td>"


def _dates(infos: Sequence[Mapping[str, Any]]) -> str:
    """The day and minute of the first sweep, and of the last if that is another day."""
    known = sorted(str(info["date"]) for info in infos if info.get("date"))
    if not known:
        return ""
    ends = dict.fromkeys(date[:10] for date in (known[0], known[-1]))
    if len(ends) > 1:
        return " to ".join(ends)
    day, _, minute = known[0][:16].partition("T")
    return f"{day} {minute} UTC"


def _machine(machine: Mapping[str, Any]) -> str:
    if not machine:
        return ""
    devices = f"{machine['devices']} × {machine['device']}"
    return f"{machine['architecture']}, {count(machine['cores'], 'core')}, {devices}"


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else "--"


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))
