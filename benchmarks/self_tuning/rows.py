"""The tables of the results, each a head and rows.

Results may be incomplete: what was not run is blank or said to be missing, and never guessed.
"""

import math
from collections.abc import Sequence

from benchmarks.optimizers import AUTO, OURS, PEERS, SPECTRAL
from benchmarks.self_tuning.analysis import Figure, Results, behind, figure
from benchmarks.self_tuning.goals import FACTOR_LIMITS, FAR, NEAR, goals
from benchmarks.self_tuning.roles import CALIBRATED, TUNED, UNTOUCHED, best_value, counted
from benchmarks.self_tuning.task import CONFIRMATION, DEVELOPMENT, LATER, SIDES, TEST, Task
from benchmarks.self_tuning.tasks import TASKS, VARIANTS

ROLES = (UNTOUCHED, CALIBRATED, TUNED)
COLOURS = {0.0: "🟩", NEAR: "🟨", FAR: "🟧", math.inf: "🟥"}  # up to so far behind

Rows = tuple[list[str], list[list[str]]]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; one without rows says so."""
    rows = body or [["not run yet", *[""] * (len(head) - 1)]]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(known: Figure | None, task: Task) -> str:
    """Mean ± deviation over seeds with the digits that a metric deserves; blank if not run."""
    if known is None:
        return ""
    if math.isnan(known.mean):
        return "diverged"
    if task.metric == "accuracy":
        return f"{known.mean:.4f} ± {known.deviation:.4f}".replace("0.", ".")
    if abs(known.mean) < 1e-3:
        return f"{known.mean:.3g} ± {known.deviation:.1g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(known.mean))))
    return f"{known.mean:.{decimals}f} ± {known.deviation:.{decimals}f}"


def ahead_by(task: Task, own: float, other: float) -> str:
    """How far ahead of another: as it is for accuracies, in per cent for the other metrics.

    A loss or an error that is more than twice the other's is said to be so many times as large.
    """
    if math.isnan(other) or math.isnan(own):
        return "" if math.isnan(other) else "diverged"
    if task.metric == "accuracy":
        text = f"{own - other:+.4f}".replace("0.", ".", 1)
    elif not task.higher_is_better and own > 2 * other:
        return f"{own / other:.2g} times as large"
    else:
        text = f"{-100 * behind(task, own, other):+.1f} %"
    return text.replace("-", "−")


def list_rows(results: Results) -> Rows:
    """The tasks of the kinds that have two, with metric and steps."""
    del results
    body = []
    sides = [counted(side) for side in (DEVELOPMENT, CONFIRMATION)]
    for kind in dict.fromkeys(task.kind for task in sides[0].values()):
        (one, first), (two, second) = (
            next(item for item in side.items() if item[1].kind == kind) for side in sides
        )
        steps = " / ".join(str(steps) for steps in dict.fromkeys((first.steps, second.steps)))
        body.append([kind, f"`{one}`", f"`{two}`", first.metric, steps])
    return ["kind", "development", "confirmation", "metric", "steps"], body


def later_rows(results: Results) -> Rows:
    """The later tasks: what each is."""
    del results
    body = [[t.kind, f"`{n}`", t.metric, str(t.steps)] for n, t in counted(LATER).items()]
    return ["kind", "task", "metric", "steps"], body


def goal_rows(results: Results) -> Rows:
    """Each goal, met or missed or not known yet, and its figures; beside it the other choice's."""
    bold = {"MISSED": "**missed**", "met": "**met**"}
    verdict = lambda goal: [bold.get(goal.verdict, goal.verdict), goal.figures]
    pairs = zip(goals(results), goals(results, SPECTRAL), strict=True)
    body = [[own.text, *verdict(own), *verdict(other)] for own, other in pairs]
    return ["goal", "mu2_auto()", "figures", "the other choice, `spectral`", "figures"], body


def score_rows(results: Results) -> Rows:
    """The integral of each profile over the tasks that ours and the strongest peers were run on.

    Of the optimizers that were run on all of these; blank for the others.
    """
    columns = [(side, role) for side in SIDES for role in ROLES]
    names = {(side, role): results.scored(role, side) for side, role in columns}
    scores = {(side, role): results.scores(role, names[side, role]) for side, role in columns}
    body = []
    for peer in PEERS:
        cells = []
        for column in columns:
            score = scores[column].get(peer)
            best = max(scores[column].values(), default=None)
            cells.append("" if score is None else _bold(f"{score:.3f}", score == best))
        if any(cells):
            body.append([PEERS[peer].title, *cells])
    heads = [f"{s}, {r} ({len(names[s, r])} of {len(counted(s))} tasks)" for s, r in columns]
    return ["", *heads], body


def best_score_rows(results: Results) -> Rows:
    """The profile scores of ours beside that of the best peer, on the tasks not developed on."""
    body = []
    for side in (LATER, CONFIRMATION):
        for role in ROLES:
            scores = results.scores(role, results.scored(role, side))
            others = {peer: score for peer, score in scores.items() if peer not in OURS}
            if others and set(OURS) <= set(scores):
                best = max(others, key=others.__getitem__)
                texts = [f"{scores[peer]:.2f}" for peer in (AUTO, SPECTRAL, best)]
                cells = [_bold(text, text == max(texts)) for text in texts]
                cells[-1] += f" {PEERS[best].title}"
                body.append([f"{side} tasks, {role} peers", *cells])
    return ["", "mu2_auto()", "with `spectral`", "best peer"], body


def front_rows(results: Results, side: str) -> Rows:
    """Untouched ``mu2_auto`` beside the best peer of each role, on tasks that can be compared.

    "Ahead by" is said of ``mu2_auto()``, without orthogonal steps.
    """
    body = []
    for name in results.compared(counted(side)):
        task, own = TASKS[name], results.figure(UNTOUCHED, name, AUTO)
        assert own is not None
        spectral = results.figure(UNTOUCHED, name, SPECTRAL)
        row = [f"{task.kind}, {task.metric}", shown(own, task)]
        row += [shown(spectral, task) if spectral else "not run"]
        for role in ROLES:
            peer = results.best_peer(role, name)
            best = results.figure(role, name, peer) if peer else None
            if peer is None or best is None:
                row += ["not run", ""]
            else:
                row += [f"{PEERS[peer].title} {shown(best, task)}"]
                row += [ahead_by(task, own.mean, best.mean)]
        body.append(row)
    head = ["", "mu2_auto()", "with `spectral`"]
    for role in ROLES:
        head += [f"best {role} peer", "ahead by"]
    return head, body


def task_rows(results: Results, side: str, role: str) -> Rows:
    """The metric on the test split; a colour for how far behind the best tuned peer; best bold."""
    names = list(counted(side))
    figures = {(p, n): results.figure(role, n, p) for p in PEERS for n in names}
    best = {n: best_value(TASKS[n], [f.mean for p in PEERS if (f := figures[p, n])]) for n in names}
    tuned = {n: results.figure(TUNED, n, peer) for n in names if (peer := results.best_tuned(n))}
    body = []
    for peer in PEERS:
        cells = []
        for name in names:
            known, beside = figures[peer, name], tuned.get(name)
            text = shown(known, TASKS[name])
            if known and beside:
                text = f"{_colour(behind(TASKS[name], known.mean, beside.mean))} {text}"
            cells.append(_bold(text, known is not None and known.mean == best[name]))
        if any(cells):
            body.append([PEERS[peer].title, *cells])
    return ["", *(f"{name} ({TASKS[name].metric})" for name in names)], body


def factor_rows(results: Results) -> Rows:
    """What each factor gives, and how far ahead of the factor 1 it is."""
    factors = sorted({1.0, *FACTOR_LIMITS})
    body = []
    for name, task in counted(DEVELOPMENT).items():
        one = figure(results.at(name, AUTO, 1.0), TEST)
        others = {f: figure(results.at(name, AUTO, f), TEST) for f in FACTOR_LIMITS}
        if one and any(others.values()):
            changes = {f: ahead_by(task, o.mean, one.mean) for f, o in others.items() if o}
            changes[1.0] = shown(one, task)
            body.append([f"{name}, {task.metric}", *(changes.get(f, "not run") for f in factors)])
    return ["", *(f"{factor:g}" for factor in factors)], body


def variant_rows(results: Results) -> Rows:
    """Untuned runs of ``mu2_auto`` against peers that were tuned anew for every size."""
    bases = {task.variant_of for task in VARIANTS.values()}
    names = [n for n, task in TASKS.items() if n in bases or task.variant_of in bases]
    body = []
    for name in sorted(names):
        task, peer = TASKS[name], results.best_tuned(name)
        own = results.figure(UNTOUCHED, name, AUTO)
        best = results.figure(TUNED, name, peer) if peer else None
        spectral = results.figure(UNTOUCHED, name, SPECTRAL)
        row = [name, str(task.steps), shown(own, task) or "not run"]
        row += [shown(spectral, task) or "not run"]
        row += [f"{PEERS[peer].title} {shown(best, task)}" if peer else "not run"]
        row += [ahead_by(task, own.mean, best.mean) if own and best else ""]
        body.append(row)
    return ["", "steps", "mu2_auto()", "with `spectral`", "best retuned peer", "ahead by"], body


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _colour(by: float) -> str:
    return next((colour for limit, colour in COLOURS.items() if by <= limit), "")


TABLES = {
    "list": list_rows,
    "later_list": later_rows,
    "goals": goal_rows,
    "scores": score_rows,
    "best_scores": best_score_rows,
    "front": front_rows,
    "tasks": task_rows,
    "factors": factor_rows,
    "variants": variant_rows,
}
