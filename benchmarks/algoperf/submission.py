"""AlgoPerf, self-tuning ruleset, JAX: ``mu2_optax.mu2_auto()`` as a submission.

Written against version 0.6 of https://github.com/mlcommons/algorithmic-efficiency, whose runner
imports this file and calls its five functions; `docs/algoperf.md` says how to run and to send it.

The optimizer state is a pair, because the runner saves the first part in its checkpoints and hands
the second through: what is saved, and the last few batches of models with BatchNorm.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from algoperf import spec

for _module, _name, _instead in (  # of Optax 0.2.2, which AlgoPerf pins
    (optax, "safe_increment", getattr(optax, "safe_int32_increment", None)),
    (optax.contrib, "ScheduleFreeState", type("ScheduleFreeState", (), {})),
):
    if not hasattr(_module, _name):
        setattr(_module, _name, _instead)

import mu2_optax  # noqa: E402

# One setting for all workloads; nothing was tuned on any of them.
#
# - Weight decay is the usual one of AdamW, on weights alone: biases and scales have no reason to be
#   small, and the rows of an embedding that no batch holds should stay as they are.
# - Label smoothing is the usual one of image classifiers and of translation, for losses with one
#   right class. Elsewhere it would move the minimum that is measured (Criteo's target is the loss).
# - Dropout is each model's own default, because no rate is passed.
# - There is no clipping: in `mu2_auto` a gradient of more than ten times its usual size counts as
#   ten times. A gradient that is not finite, as of a transcript that is longer than its audio,
#   counts as zero.
WEIGHT_DECAY = 0.1
LABEL_SMOOTHING = 0.1
NOT_DECAYED = ("BIAS", "SCALE", "EMBEDDING")  # of the types of params, how their names end

# As large as the baselines of the repository have them, which fit into eight GPUs of 16 GB.
BATCH_SIZES = {
    "cifar": 128,
    "criteo1tb": 262_144,
    "fastmri": 32,
    "imagenet_resnet": 1024,
    "imagenet_vit": 1024,
    "librispeech_conformer": 256,
    "librispeech_deepspeech": 256,
    "mnist": 64,
    "ogbg": 512,
    "wmt": 128,
}

KEPT_BATCHES = 4  # for the statistics of BatchNorm at the average
LEAST_GAIN = 1e-4  # of a running mean in float32; what moves by less is not taken to be one
LOGGED_EVERY = 100

MESH = jax.sharding.Mesh(jax.devices(), ("batch",))
EVERYWHERE = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec())
IN_PARTS = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("batch"))


def get_batch_size(workload_name: str) -> int:
    """The number of examples in a batch, on all devices together."""
    if workload_name not in BATCH_SIZES:
        raise ValueError(
            f"`workload_name` must be one of {', '.join(BATCH_SIZES)}, got {workload_name!r}; add "
            "the largest size that fits to BATCH_SIZES."
        )
    return BATCH_SIZES[workload_name]


def init_optimizer_state(
    workload: Any, model_params: Any, model_state: Any, hyperparameters: Any, rng: Any
) -> tuple[Any, Any]:
    """The first state; training begins at the params on all devices, and no batch is kept."""
    del hyperparameters, rng
    init = jax.jit(_optimizer(workload, model_params).init, out_shardings=EVERYWHERE)
    training = {"params": model_params, "model_state": model_state}
    training = jax.device_put(training, EVERYWHERE)  # otherwise the second step compiles again
    return {"optimizer": init(model_params), "training": training}, ()


def update_params(
    workload: Any,
    current_param_container: Any,
    current_params_types: Any,
    model_state: Any,
    hyperparameters: Any,
    batch: Any,
    loss_type: Any,
    optimizer_state: Any,
    eval_results: Any,
    global_step: int,
    rng: Any,
    train_state: Any = None,
) -> tuple[Any, Any, Any]:
    """One step of ``mu2_auto()``; after an evaluation, from where training was before it.

    That is ``saved["training"]``, which is None where training is at the params that come in.
    """
    del current_params_types, hyperparameters, eval_results, train_state
    saved, kept = optimizer_state
    params = current_param_container
    if saved["training"] is not None:
        params, model_state = saved["training"]["params"], saved["training"]["model_state"]
    one_class = loss_type is spec.LossType.SOFTMAX_CROSS_ENTROPY
    smoothing = LABEL_SMOOTHING if one_class else 0.0
    state, params, model_state, measures = _step(
        workload, smoothing, saved["optimizer"], params, model_state, batch, rng
    )
    if global_step % LOGGED_EVERY == 0 and workload.metrics_logger is not None:
        measures = {name: value.item() for name, value in measures.items()}
        workload.metrics_logger.append_scalar_metrics(measures, global_step)
    if jax.tree.leaves(model_state):
        kept = (*kept, batch)[-KEPT_BATCHES:]
    return ({"optimizer": state, "training": None}, kept), params, model_state


def prepare_for_eval(
    workload: Any,
    current_param_container: Any,
    current_params_types: Any,
    model_state: Any,
    hyperparameters: Any,
    loss_type: Any,
    optimizer_state: Any,
    eval_results: Any,
    global_step: int,
    rng: Any,
) -> tuple[Any, Any, Any]:
    """The average, and the statistics of BatchNorm there.

    What is returned takes the place of what is trained. The point of the next gradient and the
    running statistics that belong to it therefore wait in the state, until `update_params` goes on
    from them: training is the same, bit for bit, whether or not there was an evaluation.
    """
    del current_params_types, hyperparameters, loss_type, eval_results, global_step
    saved, kept = optimizer_state
    training = {"params": current_param_container, "model_state": model_state}
    average = _average(saved["optimizer"], current_param_container)
    if kept:
        model_state = _statistics_at(workload, average, model_state, kept, rng)
    return ({"optimizer": saved["optimizer"], "training": training}, kept), average, model_state


def data_selection(
    workload: Any,
    input_queue: Iterator[Any],
    optimizer_state: Any,
    current_param_container: Any,
    model_state: Any,
    hyperparameters: Any,
    global_step: int,
    rng: Any,
) -> Any:
    """The next batch."""
    del workload, optimizer_state, current_param_container, model_state
    del hyperparameters, global_step, rng
    return next(input_queue)


def _optimizer(workload: Any, params: Any) -> Any:
    mask = _decaying(params, workload.model_params_types)
    return mu2_optax.mu2_auto(weight_decay=WEIGHT_DECAY, weight_decay_mask=mask)


def _decaying(params: Any, types: Any) -> Any:
    """Which params decay. The tree of their types has their names in lower case."""
    if not isinstance(params, Mapping):
        return not types.name.endswith(NOT_DECAYED)
    return {name: _decaying(part, types[name.lower()]) for name, part in params.items()}


@functools.partial(
    jax.jit,
    static_argnums=(0, 1),
    donate_argnums=(2, 3, 4),
    in_shardings=(EVERYWHERE, EVERYWHERE, EVERYWHERE, IN_PARTS, EVERYWHERE),
    out_shardings=EVERYWHERE,
)
def _step(
    workload: Any, smoothing: float, state: Any, params: Any, model_state: Any, batch: Any, rng: Any
) -> tuple[Any, Any, Any, dict[str, Any]]:
    def summed_loss(params: Any) -> tuple[Any, Any]:
        logits, new_model_state = _forward(workload, params, model_state, batch, rng)
        losses = workload.loss_fn(
            label_batch=batch["targets"],
            logits_batch=logits,
            mask_batch=batch.get("weights"),
            label_smoothing=smoothing,
        )
        return losses["summed"], (losses["n_valid_examples"], new_model_state)

    grad_fn = jax.value_and_grad(summed_loss, has_aux=True)
    (loss, (count, new_model_state)), grads = grad_fn(params)
    grads = jax.tree.map(lambda g: g / count, grads)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: jnp.where(jnp.isfinite(norm), g, 0), grads)
    updates, state = _optimizer(workload, params).update(grads, state, params)
    measures = {
        "loss": loss / count,
        "grad_norm": norm,
        "learning_rate": mu2_optax.found_rate(state),
    }
    return state, optax.apply_updates(params, updates), new_model_state, measures


@functools.partial(jax.jit, out_shardings=EVERYWHERE)
def _average(state: Any, params: Any) -> Any:
    return mu2_optax.eval_params(state, params)


@functools.partial(
    jax.jit,
    static_argnums=0,
    in_shardings=(EVERYWHERE, EVERYWHERE, IN_PARTS, EVERYWHERE),
    out_shardings=EVERYWHERE,
)
def _moved_statistics(
    workload: Any, params: Any, model_state: Any, batch: Any, rng: Any
) -> tuple[Any, Any]:
    return _forward(workload, params, model_state, batch, rng)[1]


def _statistics_at(workload: Any, params: Any, running: Any, batches: Any, rng: Any) -> Any:
    """The mean over batches of the statistics that BatchNorm has at these params.

    A model only gives its running means, which are ``m * running + (1 - m) * batch``, and keeps its
    m to itself. From zero they are ``(1 - m) * batch``, and the difference to another start is m.
    """
    moved = functools.partial(_moved_statistics, workload, params)
    zero = jax.tree.map(jnp.zeros_like, running)
    start = jax.tree.map(lambda a: 1 + jnp.abs(a), running)
    from_zero = [moved(zero, batch, rng) for batch in batches]
    from_start = moved(start, batches[-1], rng)

    def statistic(running: Any, start: Any, from_start: Any, *from_zero: Any) -> Any:
        gain = 1 - (from_start - from_zero[-1]) / start
        batch = sum(from_zero) / (len(from_zero) * gain)
        return jnp.where(gain > LEAST_GAIN, batch, running)

    return jax.tree.map(statistic, running, start, from_start, *from_zero)


def _forward(workload: Any, params: Any, model_state: Any, batch: Any, rng: Any) -> tuple[Any, Any]:
    """The logits, and the running statistics after them, in training mode."""
    return workload.model_fn(
        params, batch, model_state, spec.ForwardPassMode.TRAIN, rng, update_batch_norm=True
    )
