"""Tables of what a step costs, for the page about performance."""

from pathlib import Path

from benchmarks.files import read_rows
from benchmarks.self_tuning.rows import Rows

OURS, ADAM = "mu2_auto", "Adam"


def beside_adam_rows(file: Path, dtype: str = "float32") -> Rows:
    """A step of ``mu2_auto`` divided by one of Adam, for each model of ``benchmarks.step_cost``."""
    rows = [row for row in read_rows(file) if row["dtype"] == dtype]
    found = {(row["model"], row["optimizer"]): row for row in rows}
    body = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own, adam = found[model, OURS], found[model, ADAM]
        ratio = lambda column, own=own, adam=adam: float(own[column]) / float(adam[column])
        body.append([model, *(f"{ratio(name):.2f}" for name in ("time", "state", "peak"))])
        body[-1] += [f"{ratio('compile'):.1f}", f"{float(adam['milliseconds']):.3g} ms"]
    return ["mu2_auto ÷ Adam", "time", "state", "peak memory", "compilation", "Adam's step"], body


def every_step_rows(file: Path, dtype: str = "float32") -> Rows:
    """The time of a step over that of SGD, for each optimizer and model; gradients and state too.

    State and compilation are those on the first model that is a network.
    """
    rows = [row for row in read_rows(file) if row["dtype"] == dtype]
    models = list(dict.fromkeys(row["model"] for row in rows))
    body = []
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        own = {row["model"]: row for row in rows if row["optimizer"] == name}
        network = own[models[1]]
        body.append([name, network["gradients"], f"{float(network['state']):.1f}"])
        body[-1] += [network["compile"], *(own[model]["time"] for model in models)]
    return ["", "gradients", "state", "compilation", *(f"time, {model}" for model in models)], body


def pytorch_rows(folder: Path) -> Rows:
    """How many times as fast as eager PyTorch each way to train is, by the number of cores."""
    files = sorted(folder.glob("cores_*.csv"))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for file in files:
        for row in read_rows(file):
            times = [f"{float(row[f'times_{name}']):.2g}" for name in ("eager", "low", "high")]
            if row["way"] != "PyTorch, eager":
                text = f"{times[0]} ({times[1]}–{times[2]})"
                cells.setdefault((row["model"], row["way"]), {})[file.stem] = text
    body = [[*names, *(own.get(file.stem, "") for file in files)] for names, own in cells.items()]
    order = list(dict.fromkeys(line[0] for line in body))
    body.sort(key=lambda line: order.index(line[0]))
    cores = [file.stem.removeprefix("cores_") for file in files]
    return ["", "", *(f"{n} core{'s' * (n != '1')}" for n in cores)], body
