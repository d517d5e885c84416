"""Whether ``mu2_auto`` still does what it did when its results were made.

For each of its choices ``frozen.json`` names the commit that froze the constants, under every name
that it has had: a commit gets another one when it is rebased. So the file also has a few numbers of
a short run, which any change of the rule changes.
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
from benchmarks.optimizers import AUTO, SPECTRAL
from benchmarks.self_tuning.task import FOLDER

FILE = FOLDER / "frozen.json"
STEPS = 40
# Relative. Rounding, on another CPU or in another order of the same arithmetic, is less; a constant
# that is changed by 1 % is more. Work on the code of `mu2_auto` must stay within it.
TOLERANCE = 2e-4
CHOICES = {AUTO: False, SPECTRAL: True}
REMEDY = (
    "mu2_auto does not give what it gave when its constants were frozen. Undo the change; or, if "
    "it is meant, freeze it anew (commit, then python -m benchmarks.self_tuning --freeze) and run "
    "what has changed again, on the confirmation tasks once: python -m benchmarks.self_tuning "
    "--frozen COMMIT --again mu2_auto mu2_auto_spectral."
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

    def run(spectral: bool) -> dict[str, Any]:
        tx = mu2_optax.mu2_auto(spectral=spectral)

        def step(carry: Any, batch: Any) -> tuple[Any, None]:
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (start, tx.init(start)), (rows, targets))
        x = mu2_optax.eval_params(state, params)
        away = optax.tree.norm(jax.tree.map(jnp.subtract, x, start))
        last = loss(x, (rows[-1], targets[-1]))
        return {"rate": mu2_optax.found_rate(state), "loss": last, "distance": away}

    found = jax.jit(lambda: {peer: run(spectral) for peer, spectral in CHOICES.items()})()
    return jax.tree.map(lambda value: float(f"{float(value):.6g}"), found)


def read(file: Path = FILE) -> dict[str, Any]:
    """What was frozen, for each choice; nothing if nothing was."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write(file: Path = FILE) -> None:
    """Freezes ``mu2_auto`` as it is in the commit that is checked out.

    For a choice that gives what was frozen before, the commit is another name for that.
    """
    if git("diff", "--quiet", "HEAD", "--", "../mu2_optax") is None:
        raise SystemExit("--freeze: commit the changes of mu2_optax/ first")
    commit, known = git("rev-parse", "--short=7", "HEAD"), read(file)
    date = time.strftime("%Y-%m-%d")
    for peer, found in fingerprint().items():
        if peer in known and not _differences(peer, found, known[peer]["fingerprint"]):
            names = dict.fromkeys([*known[peer]["commits"], commit])
            known[peer]["commits"] = list(names)
        else:
            known[peer] = {"commits": [commit], "date": date, "fingerprint": found}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def differences(known: dict[str, Any]) -> list[str]:
    """A line for each number that is not the one that was frozen."""
    return [
        line
        for peer, found in fingerprint().items()
        for line in _differences(peer, found, known[peer]["fingerprint"])
    ]


def _differences(peer: str, found: dict[str, float], known: dict[str, float]) -> list[str]:
    return [
        f"{peer}: {name} {value} instead of {known[name]}"
        for name, value in found.items()
        if abs(value / known[name] - 1) > TOLERANCE
    ]
