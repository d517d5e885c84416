"""β measured on networks: where a small error of d is not yet a good step.

    python -m benchmarks.measured_networks --model mlp
    python -m benchmarks.measured_networks --model cnn --seeds 1 --lrs 0.1 1 10 --steps 300

An MLP 784-256-256-10 or the paper's CNN on MNIST, batches of 64; a fixed γ of 0.1 (the paper's
choice for networks) and linear momenta; β as in the paper, β measured, and β = 1, the plain
gradient. It writes ``results.csv`` and ``meta.json`` into
``benchmarks/results/measured_networks_<model>``, and prints the accuracies.
"""

import functools

import mu2_optax
from benchmarks import experiment, files, image_tasks
from benchmarks.scanned_task import make_train_with
from examples import data as datasets
from mu2_optax.sweep import sweep

BATCH, STEPS = 64, 938
RATES = (0.01, 0.1, 1.0, 10.0)
MODELS = {
    "mlp": functools.partial(image_tasks.dense_task, hidden=(256, 256), batch=BATCH),
    "cnn": functools.partial(image_tasks.cnn_task, batch=BATCH),
}
MOMENTA = {
    "fixed γ, β = 0.9": mu2_optax.fixed_momentum(),
    "fixed γ, β measured": mu2_optax.fixed_momentum(beta=mu2_optax.measured_beta()),
    "fixed γ, no momentum of d": mu2_optax.fixed_momentum(beta=1.0),
    "linear γ, β = 1/t": mu2_optax.linear_momentum(),
    "linear γ, β measured": mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()),
    "linear γ, no momentum of d": mu2_optax.linear_momentum(beta=1.0),
}


def main() -> None:
    """Runs the comparison."""
    parser = experiment.make_parser(__doc__, data="mnist", rates=RATES, optimizers=())
    parser.add_argument("--model", choices=MODELS, default="mlp")
    args = parser.parse_args()
    args.out = args.out or files.RESULTS / f"measured_networks_{args.model}"
    task = MODELS[args.model](datasets.load_or_exit(parser, args))
    results = []
    for label, momentum in MOMENTA.items():
        make = functools.partial(mu2_optax.mu2_sgd, momentum=momentum)
        result = sweep(
            make_train_with(task, make, args.steps or STEPS),
            args.lrs,
            args.seeds,
            strategy="loop",
            resume=experiment.journal_of(args.out, label),
            label=label,
            context={"optimizer": label, "data": args.data, "steps": args.steps or STEPS},
        )
        results.append(result)
        means = result.final("test_accuracy").mean(axis=1)
        print(f"{label:28}", *(f"{value:.3f}" for value in means), flush=True)
    experiment.save(results, args.out, "benchmarks.measured_networks")


if __name__ == "__main__":
    main()
