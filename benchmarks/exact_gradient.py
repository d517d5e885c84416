"""What an estimate without any error would give: Anytime-SGD with the gradient of all the data.

    python -m benchmarks.exact_gradient --data mnist          # minutes
    python -m benchmarks.exact_gradient --data fashion-mnist

Logistic regression in a ball of radius 4 with linear momenta, as in ``benchmarks.measured_beta``,
of which it is the limit: μ²-SGD with d = ∇f. Every step is a pass over all images, so that there is
one seed and the rates go from 0.1 to 1e4 only. It writes ``results.csv`` and ``meta.json`` into
``benchmarks/results/exact_gradient_<data>``.
"""

from typing import Any

from benchmarks import convex, experiment, logistic_task
from examples import data as datasets

RATES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
OPTIMIZER = "anytime_exact"


def main() -> None:
    """Runs the experiment."""
    parser = experiment.make_parser(__doc__, data="mnist", rates=RATES, optimizers=(OPTIMIZER,))
    parser.set_defaults(seeds=1)
    args = parser.parse_args()
    args.out = args.out or experiment.folder("exact_gradient", args.data)
    data = datasets.load_or_exit(parser, args)
    setting: dict[str, Any] = convex.setting(args, data) | {"batch": len(data.train_y)}
    results = experiment.run(
        [experiment.Case(OPTIMIZER, args.steps or convex.STEPS, "ball_4")],
        lambda case: logistic_task.make_train(case, data),
        args,
        setting=setting,
        strategy="vmap",
    )
    experiment.save(results.values(), args.out, "benchmarks.exact_gradient")


if __name__ == "__main__":
    main()
