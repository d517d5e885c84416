"""Whether ``mu2_auto`` still does what it did when its results were made.

``frozen.json`` names the commit that froze its constants, under every name that it has had: a
commit gets another one when it is rebased. So the file also has a few numbers of a short run, which
any change of the rule changes.
"""

import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import git
from benchmarks.self_tuning.records import FOLDER

FILE = FOLDER / "frozen.json"
STEPS = 40
TOLERANCE = 2e-4  # relative; the rounding of another CPU is less, a changed constant more
CHOICES = {"mu2_auto()": False, "mu2_auto(spectral=True)": True}
REMEDY = (
    "mu2_auto does not give what it gave when its constants were frozen. Undo the change; or, if "
    "it is meant, freeze it anew (commit, then python -m benchmarks.self_tuning --freeze) and run "
    "mu2_auto and mu2_auto_spectral again, on the confirmation tasks once: python -m "
    "benchmarks.self_tuning --frozen COMMIT --again mu2_auto mu2_auto_spectral."
)


def _numbers(*shape: int) -> Any:
    """Numbers between −1 and 1 that need no generator."""
    return np.sin(np.arange(1, 1 + np.prod(shape)) ** 1.5).reshape(shape).astype(np.float32)


def fingerprint() -> dict[str, dict[str, float]]:
    """A short run of each choice: rate, loss at the average and its distance from the start.

    The problem has matrices, vectors, a scalar, rows with rare gradients and batches of outliers.
    """
    start = {
        "table": jnp.asarray(_numbers(5, 4)),
        "in": jnp.asarray(_numbers(4, 6)),
        "bias": jnp.full(6, 0.1),
        "out": jnp.asarray(_numbers(6, 3) / 2),
        "scale": jnp.ones(()),
    }
    steps = np.arange(STEPS)
    rows = (steps[:, None] ** 2 + np.arange(4)) % 5
    sizes = np.where(steps % 7 == 6, 10, 1)[:, None, None]
    targets = np.asarray(_numbers(STEPS, 4, 3) * sizes, np.float32)

    def loss(params: Any, batch: Any) -> Any:
        hidden = jnp.tanh(params["table"][batch[0]] @ params["in"] + params["bias"])
        return jnp.mean((params["scale"] * hidden @ params["out"] - batch[1]) ** 2)

    def run(spectral: bool) -> dict[str, float]:
        tx = mu2_optax.mu2_auto(spectral=spectral)

        def step(carry: Any, batch: Any) -> tuple[Any, None]:
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (start, tx.init(start)), (rows, targets))
        x = mu2_optax.eval_params(state, params)
        away = optax.tree.norm(jax.tree.map(jnp.subtract, x, start))
        last = loss(x, (rows[-1], targets[-1]))
        found = {"rate": mu2_optax.found_rate(state), "loss": last, "distance": away}
        return {name: float(f"{float(value):.6g}") for name, value in found.items()}

    return {call: run(spectral) for call, spectral in CHOICES.items()}


def read(file: Path = FILE) -> dict[str, Any]:
    """What was frozen; nothing if nothing was."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write(file: Path = FILE) -> None:
    """Freezes ``mu2_auto`` as it is in the commit that is checked out.

    If it gives what was frozen before, the commit is another name for that.
    """
    if git("diff", "--quiet", "HEAD", "--", "../mu2_optax") is None:
        raise SystemExit("--freeze: commit the changes of mu2_optax/ first")
    commit, known = git("rev-parse", "--short=7", "HEAD"), read(file)
    if known and not differences(known["fingerprint"]):
        known["commits"] = list(dict.fromkeys([*known["commits"], commit]))
    else:
        date = time.strftime("%Y-%m-%d")
        known = {"commits": [commit], "date": date, "fingerprint": fingerprint()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def differences(known: dict[str, Any]) -> list[str]:
    """A line for each number that is not the one that was frozen."""
    return [
        f"{call}: {name} {value} instead of {known[call][name]}"
        for call, found in fingerprint().items()
        for name, value in found.items()
        if abs(value / known[call][name] - 1) > TOLERANCE
    ]
