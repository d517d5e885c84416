"""How and when results were made."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from mu2_optax.sweep._report.tables import count
from mu2_optax.sweep._results.result import SweepResult


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
