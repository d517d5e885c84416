"""A stand-in for AlgoPerf's harness: its names, its loop and its order of calls, on local images.

The submission gets what it gets there: functions called by keyword, sums for losses, padded batches
with weights, a model whose running statistics go in and come out, and an evaluation at what
`prepare_for_eval` returns, which takes the place of the training params. The tests run it on it.
"""

import enum
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

SUBMISSION = Path(__file__).with_name("submission.py")


class LossType(enum.Enum):
    SOFTMAX_CROSS_ENTROPY = 0
    SIGMOID_CROSS_ENTROPY = 1


class ForwardPassMode(enum.Enum):
    TRAIN = 0
    EVAL = 1


class ParameterType(enum.Enum):
    WEIGHT = 0
    BIAS = 1
    BATCH_NORM_SCALE = 3


def load_submission() -> Any:
    """The submission anew, with the names of this module in the place of ``algoperf.spec``."""
    package = types.ModuleType("algoperf")
    package.__dict__["spec"] = sys.modules[LossType.__module__]
    place = importlib.util.spec_from_file_location("submission", SUBMISSION)
    assert place is not None
    assert place.loader is not None
    submission = importlib.util.module_from_spec(place)
    installed = sys.modules.get("algoperf")
    sys.modules["algoperf"] = package
    try:
        place.loader.exec_module(submission)
    finally:
        del sys.modules["algoperf"]
        if installed is not None:
            sys.modules["algoperf"] = installed
    return submission


class MLP(linen.Module):
    """The network of AlgoPerf's MNIST workload: 128 sigmoids."""

    @linen.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        del train
        x = linen.sigmoid(linen.Dense(128)(x.reshape(len(x), -1)))
        return linen.Dense(10)(x)


class Workload:
    """A model (of images and ``train``) and its images, as ``algoperf.spec.Workload``."""

    loss_type = LossType.SOFTMAX_CROSS_ENTROPY
    metrics_logger: Any = None

    def __init__(self, model: linen.Module, data: Any) -> None:
        self._model = model
        self.data = data
        self.model_params_types: Any = None

    def _build_input_queue(
        self, data_rng: Any, split: str, data_dir: str | None, global_batch_size: int
    ) -> Iterator[dict[str, Any]]:
        """Shuffled batches without end; the last of a pass is padded, with weights of zero."""
        del split, data_dir
        rng = np.random.default_rng(int(jax.random.randint(data_rng, (), 0, 2**31 - 1)))
        images, labels = self.data.train_x, self.data.train_y
        while True:
            order = rng.permutation(len(labels))
            for start in range(0, len(order), global_batch_size):
                rows = np.resize(order[start : start + global_batch_size], global_batch_size)
                weights = np.arange(global_batch_size) < len(order) - start
                yield {
                    "inputs": images[rows],
                    "targets": labels[rows],
                    "weights": weights.astype(np.float32),
                }

    def init_model_fn(self, rng: Any) -> tuple[Any, Any]:
        """The first params, and the first running statistics; None where there are none."""
        variables = dict(self._model.init(rng, jnp.asarray(self.data.train_x[:1]), train=False))
        params = variables.pop("params")
        self.model_params_types = _types(params)
        return params, variables or None

    def model_fn(
        self,
        params: Any,
        augmented_and_preprocessed_input_batch: dict[str, Any],
        model_state: Any,
        mode: ForwardPassMode,
        rng: Any,
        update_batch_norm: bool,
        dropout_rate: float = 0.0,
    ) -> tuple[Any, Any]:
        """The logits, and the running statistics after them."""
        del rng, dropout_rate
        variables = {"params": params, **(model_state or {})}
        images = augmented_and_preprocessed_input_batch["inputs"]
        train = mode is ForwardPassMode.TRAIN
        if not (train and update_batch_norm and model_state):
            return self._model.apply(variables, images, train=train), model_state
        return self._model.apply(variables, images, train=train, mutable=["batch_stats"])

    def loss_fn(
        self, label_batch: Any, logits_batch: Any, mask_batch: Any = None, label_smoothing: Any = 0
    ) -> dict[str, Any]:
        """The sum of the losses of the examples that count, and how many those are."""
        targets = optax.smooth_labels(jax.nn.one_hot(label_batch, 10), label_smoothing)
        losses = optax.softmax_cross_entropy(logits_batch, targets)
        weights = jnp.ones(len(losses)) if mask_batch is None else mask_batch
        summed = (losses * weights).sum()
        return {"summed": summed, "n_valid_examples": weights.sum(), "per_example": losses}

    def eval_model(self, params: Any, model_state: Any) -> dict[str, float]:
        """The accuracy and the mean loss on the test images."""
        labels, batch = self.data.test_y, {"inputs": self.data.test_x}
        logits, _ = self.model_fn(params, batch, model_state, ForwardPassMode.EVAL, None, False)
        loss = self.loss_fn(labels, logits)["summed"] / len(labels)
        return {"accuracy": float((logits.argmax(-1) == labels).mean()), "loss": float(loss)}


def _types(params: Any) -> Any:
    """The types of params as AlgoPerf gives them: by their names, under names in lower case."""
    kinds = dict(zip(("kernel", "bias", "scale"), ParameterType, strict=True))
    of = lambda name, part: _types(part) if isinstance(part, dict) else kinds[name]
    return {name.lower(): of(name, part) for name, part in params.items()}


class Evaluation(NamedTuple):
    """Params and running statistics before and after `prepare_for_eval`, after so many steps."""

    step: int
    before: tuple[Any, Any]
    after: tuple[Any, Any]


def train_once(
    submission: Any,
    workload: Any,
    batch_size: int,
    steps: int,
    evaluate_at: Any,
    seed: int = 0,
    evaluated: Callable[[Evaluation], None] = lambda evaluation: None,
) -> tuple[Any, Any, Any]:
    """Trains as AlgoPerf's runner does, with evaluations after given steps instead of seconds.

    Returns:
      The optimizer state, the params and the running statistics as they come out of the last call.
    """
    data_rng, opt_rng, model_rng, rng = jax.random.split(jax.random.key(seed), 4)
    queue = workload._build_input_queue(data_rng, "train", None, batch_size)
    params, model_state = workload.init_model_fn(model_rng)
    optimizer_state = submission.init_optimizer_state(workload, params, model_state, None, opt_rng)
    fixed = {
        "workload": workload,
        "current_params_types": None,
        "hyperparameters": None,
        "loss_type": workload.loss_type,
        "eval_results": [],
    }
    for step in range(steps):
        keys = jax.random.split(jax.random.fold_in(rng, step), 3)
        batch = submission.data_selection(
            workload, queue, optimizer_state, params, model_state, None, step, keys[0]
        )
        now = {"current_param_container": params, "model_state": model_state}
        now |= {"optimizer_state": optimizer_state, "global_step": step, "rng": keys[1]}
        extra = {"batch": batch, "train_state": types.MappingProxyType({})}
        optimizer_state, params, model_state = submission.update_params(**fixed, **now, **extra)
        if step + 1 in evaluate_at:
            before = params, model_state
            now = {"current_param_container": params, "model_state": model_state}
            now |= {"optimizer_state": optimizer_state, "global_step": step + 1, "rng": keys[2]}
            optimizer_state, params, model_state = submission.prepare_for_eval(**fixed, **now)
            evaluated(Evaluation(step + 1, before, (params, model_state)))
    return optimizer_state, params, model_state
