"""The tasks: of every kind one for development and one for confirmation, where there are two.

Nothing of the first four rules of ``mu2_auto`` was chosen on a confirmation task, nor on a later
one, which is of a kind that no other task is of. The fifth rule was chosen with all of them known.
A variant is a development task with another batch size or horizon, and is not counted as a task of
its own.
"""

from functools import partial
from typing import Any

from benchmarks.self_tuning.task import CONFIRMATION, DEVELOPMENT, LATER, Task
from benchmarks.self_tuning.tasks import (
    control,
    embeddings,
    finetuning,
    generative,
    graphs,
    images,
    later,
    regression,
    text,
)

BATCHES = {1: 4000, 8: 2000, 512: 300}  # steps for each batch size
HORIZONS = {"quarter": 0.25, "fourfold": 4}


def _here(load: Any, *options: Any) -> Any:
    """A loader that needs no folder."""
    return lambda data_dir: load(*options)


def _dense(*hidden: int, batch: int = 64) -> Any:
    return partial(images.dense_network, hidden=hidden, batch=batch)


def _conv(network: str) -> Any:
    return partial(images.convolutional_network, network=network, batch=32)


def _few(name: str) -> Any:
    """Images for convolutions, fewer of them to measure with."""
    return partial(images.load, name, held_out=images.HELD_OUT_CONV, tested=images.TESTED_CONV)


_mnist, _fashion = (partial(images.load, name) for name in ("mnist", "fashion-mnist"))
_unlabelled = lambda name, **options: partial(generative.load, name, **options)
_changed = lambda name, change: partial(finetuning.load, name, change)
_tuned = lambda trained: partial(finetuning.finetuning, trained=trained)
_ppo = lambda environment: partial(control.ppo, env=environment)
_topics, _source = (_here(text.load, name) for name in ("topics", "source"))
_recurrent = lambda cell: partial(text.recurrent_network, cell=cell)
_transformer = lambda output: partial(text.transformer, output=output)
_graphs = lambda name: (_here(graphs.load, name), partial(graphs.network, name=name))
_deep = _dense(*(64,) * 11)

# kind: (metric, then the name, steps, data and functions of the task on either side)
_KINDS: dict[str, tuple[Any, ...]] = {
    "softmax regression": (
        "accuracy",
        ("softmax_mnist", 800, _mnist, _dense()),
        ("softmax_fashion", 800, _fashion, _dense()),
    ),
    "dense network": (
        "accuracy",
        ("mlp_fashion", 800, _fashion, _dense(128, 128)),
        ("mlp_mnist", 800, _mnist, _dense(128, 128)),
    ),
    "deep dense network without normalization": (
        "accuracy",
        ("deep_fashion", 800, _fashion, _deep),
        ("deep_mnist", 800, _mnist, _deep),
    ),
    "convolutional network": (
        "accuracy",
        ("cnn_fashion", 300, _few("fashion-mnist"), _conv("cnn")),
        ("cnn_mnist", 300, _few("mnist"), _conv("cnn")),
    ),
    "residual network with BatchNorm": (
        "accuracy",
        ("resnet_cifar", 400, _few("cifar10"), _conv("resnet")),
        ("resnet_fashion", 300, _few("fashion-mnist"), _conv("resnet")),
    ),
    "recurrent network": (
        "loss",
        ("gru_topics", 600, _topics, _recurrent("gru")),
        ("lstm_source", 600, _source, _recurrent("lstm")),
    ),
    "transformer": (
        "loss",
        ("transformer_topics", 500, _topics, _transformer("zero")),
        ("transformer_source", 500, _source, _transformer("tied")),
    ),
    "autoencoder": (
        "loss",
        ("vae_mnist", 600, _unlabelled("mnist"), generative.variational_autoencoder),
        ("autoencoder_fashion", 800, _unlabelled("fashion-mnist"), generative.autoencoder),
    ),
    "contrastive or denoising": (
        "loss",
        ("contrastive_mnist", 600, _unlabelled("mnist"), generative.contrastive),
        ("denoising_digits", 3000, _unlabelled("digits", held_out=300), generative.denoising),
    ),
    "regression to high accuracy": (
        "error",
        ("pinn_poisson", 4000, _here(regression.load_points, 2), regression.poisson),
        ("function", 4000, _here(regression.load_points, 3), regression.function_to_fit),
    ),
    "table": (
        "loss",
        ("table_heavy", 2000, _here(regression.load_table, "heavy"), regression.table),
        ("table_skewed", 2000, _here(regression.load_table, "skewed"), regression.table),
    ),
    "embeddings with rare rows": (
        "loss",
        ("factorization", 3200, _here(embeddings.load_ratings), embeddings.factorization),
        ("skip_gram", 3000, _here(embeddings.load_words), embeddings.skip_gram),
    ),
    "graph network": (
        "loss",
        ("graph_triangles", 1200, *_graphs("triangles")),
        ("graph_communities", 1200, *_graphs("communities")),
    ),
    "fine-tuning": (
        "accuracy",
        ("finetune_whole", 300, _changed("mnist", "turned"), _tuned("whole")),
        ("finetune_head", 300, _changed("fashion-mnist", "classes"), _tuned("head")),
    ),
    "LoRA": (
        "accuracy",
        ("lora_mnist", 600, _changed("mnist", "turned"), _tuned("lora")),
        ("lora_fashion", 600, _changed("fashion-mnist", "turned"), _tuned("lora")),
    ),
    "reinforcement learning": (
        "return",
        ("ppo_cartpole", 1600, _here(control.load), _ppo(control.cartpole())),
        ("ppo_acrobot", 1600, _here(control.load), _ppo(control.acrobot())),
    ),
}

TASKS: dict[str, Task] = {}
for _kind, (_metric, *_sides) in _KINDS.items():
    for _side, _rest in zip((DEVELOPMENT, CONFIRMATION), _sides, strict=True):
        _name, *_functions = _rest
        TASKS[_name] = Task(_kind, _side, _metric, *_functions, mean_of_run=_metric == "return")

# name: (kind, metric, steps, data and functions), each of a kind of its own
_LATER: dict[str, tuple[Any, ...]] = {
    "experts_fashion": ("mixture of experts", "accuracy", 600, _fashion, later.experts),
    "convolutions_topics": (
        "convolutions over time", "loss", 500, _topics, later.convolutions_over_time
    ),
    "sines": ("network of sines", "loss", 2000, _here(later.load_texture), later.sines),
    "ranking": ("ranking of pairs", "loss", 1200, _here(later.load_pairs), later.ranking),
    "counts": ("Poisson regression", "loss", 2000, _here(later.load_counts), later.counts),
    "pendulum": (
        "differential equation", "loss", 600, _here(later.load_orbits), later.differential_equation
    ),
    "sets": ("network of sets", "loss", 1200, _here(later.load_sets), later.sets),
    "crescents": ("normalizing flow", "loss", 1200, _here(later.load_crescents), later.flow),
    "quantiles": ("quantile regression", "loss", 1200, _here(later.load_spreads), later.quantiles),
}  # fmt: skip
for _name, (_kind, *_rest) in _LATER.items():
    TASKS[_name] = Task(_kind, LATER, *_rest)

VARIANTS = {
    f"mlp_fashion_batch_{size}": TASKS["mlp_fashion"]._replace(
        steps=steps, make=_dense(128, 128, batch=size), variant_of="mlp_fashion"
    )
    for size, steps in BATCHES.items()
} | {
    f"{name}_{horizon}": TASKS[name]._replace(steps=int(TASKS[name].steps * times), variant_of=name)
    for name in ("mlp_fashion", "table_heavy", "factorization")
    for horizon, times in HORIZONS.items()
}
TASKS |= VARIANTS
