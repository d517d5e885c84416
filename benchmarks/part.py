"""The correction on a part of the batch: test accuracy against the learning rate, at equal cost.

    python -m benchmarks.part --data mnist
    python -m benchmarks.part --data fashion-mnist

Logistic regression as in ``benchmarks.measured_beta``: each tensor in its unit ball, the whole
vector in a ball of radius 4, and no set; rates from 1e-4 to 1e4, 3 seeds. μ²-SGD with
β = 1/t and with measured β, the correction on 1, 1/2, 1/4, 1/8 and 1/16 of each batch of 64, which
costs 1 + share gradients a step; with as many gradients as SGD, and measured β also with as many
steps. It writes ``results.csv`` and ``meta.json`` into
``benchmarks/results/part_<data>``. Runs on the whole batch are those of
``benchmarks.measured_beta``.
"""

from benchmarks import experiment, measured_beta
from benchmarks.optimizers import OPTIMIZERS, PARTS

COMPARED = ("mu2_sgd", "mu2_sgd_measured", "sgd", *PARTS)


def main() -> None:
    """Runs the comparison."""
    args, data = measured_beta.arguments(__doc__, COMPARED, "part")

    def steps_of(optimizer: str) -> tuple[int, ...]:
        equal_cost = int(args.steps // OPTIMIZERS[optimizer].gradients)
        only = optimizer in PARTS and "measured" not in optimizer
        return (equal_cost,) if only else (args.steps, equal_cost)

    known = experiment.folder("measured", args.data)
    results = measured_beta.run_on_sets(args, data, steps_of, known)
    experiment.save(results.values(), args.out, "benchmarks.part")


if __name__ == "__main__":
    main()
