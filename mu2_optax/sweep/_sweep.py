"""The public call: a function, rates and seeds in, a result out."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._engine import run_grid
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._result import SweepResult

Strategy: TypeAlias = Literal["auto", "vmap", "map", "loop", "python"]
"""How the cells run; see :func:`sweep`."""

Rates: TypeAlias = Sequence[float | np.number[Any]] | npt.NDArray[Any] | jax.Array
"""Numbers in a row."""


def sweep(
    train: Callable[..., Mapping[str, Any]],
    learning_rates: Rates | Mapping[str, Rates],
    seeds: int | Sequence[int],
    *,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    label: str = "",
    context: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    executor: Executor | None = None,
) -> SweepResult:
    """Runs ``train`` for every learning rate and seed, with one trace and one compile.

    ``train(learning_rate, key)`` is JAX code from start to end: it gets a traced scalar and
    ``jax.random.key(seed)``, and returns a dict of metrics, scalars or curves. Divergence is a
    result: NaN and Inf are kept.

    These strategies give the same numbers, to rounding:

    * ``"vmap"``: the whole grid side by side in one call. The seeds are mapped outside and the
      rates inside, so what depends on the key alone (which batches to gather) is computed once per
      seed. With ``chunk_size``, several calls of at most that many cells.
    * ``"map"``: the whole grid in one call of ``lax.map``, ``chunk_size`` cells (1 if None) at a
      time.
    * ``"loop"``: one call per cell. A cell that raises is NaN in the result, with a warning, and
      does not take the others with it.
    * ``"auto"``: ``"loop"`` on a CPU if ``train`` contains a convolution, or in a loop a product of
      matrices that keeps a core busy by itself (sides from 16 on, 4 million multiplications: a
      dense layer of 100 units), and ``"vmap"`` everywhere else; on a CPU the rates are shared out
      between the cores, a call each. Measured by ``benchmarks/sweep_throughput.py``.

    On a CPU, as many calls run at once as there are cores, at most 4.

    One strategy is for what is not JAX code from start to end, such as a data loader around a
    compiled step:

    * ``"python"``: ``train`` is an ordinary function, called once per cell with Python floats and a
      concrete key, one cell after another: every rate of the first seed, then those of the next.
      What it compiles it should compile once, outside, with the learning rate as an argument. The
      first cell that finishes decides the metrics' shapes; a cell that raises is as in ``"loop"``.

    Args:
      train: A function of (learning_rate, key), or, if ``learning_rates`` is a dict, of its names
        and ``key``, called by keyword.
      learning_rates: The rates; or a dict of names to values, whose product is the grid. They are
        passed as floats of JAX's default precision.
      seeds: The number of seeds (then 0, 1, ...), or the seeds themselves.
      strategy: ``"auto"``, ``"vmap"``, ``"map"``, ``"loop"`` or ``"python"``.
      chunk_size: How many cells run side by side (on each device), to bound memory.
      devices: Devices of one kind to split the grid over, such as ``jax.devices()``; each call then
        runs on all of them. The default device if None. Under ``jax.distributed`` these are the
        devices of all processes; each makes the same call of ``sweep``, and gets the whole result.
      progress: Whether to show progress on stderr: on a terminal one line with the rates and seeds
        that are running and the time left, elsewhere a line every ten seconds.
      resume: A file that records each finished call's cells; if it exists, the cells in it are not
        run again. A file that another sweep has recorded is refused, also if only ``train`` was
        edited since (which cannot be seen in ``"python"``: put a version into ``context``).
      label: The result's label, such as the optimizer's name.
      context: Values to keep in ``result.info`` which, with the grid, must be the same on resume.
      minutes: A budget of time: no call starts after it. Cells that have not been run are then not
        ``finished`` in the result; with ``resume``, the same call goes on another time.
      executor: What runs the calls instead of this process: a ``ProcessPoolExecutor``,
        ``Client.get_executor()`` of Dask, or another executor like those of
        ``concurrent.futures``. ``train`` is pickled, sent to each worker once, and compiled there;
        the calls are those of a run without it, and give the same bits on the same kind of machine.
        Several workers need several calls: set ``chunk_size``, or the strategy ``"loop"``. With
        the strategy ``"python"`` several cells run at once.

    Returns:
      The result; ``result.metrics["loss"]`` has the shape (rates, seeds, ...).

    Raises:
      SweepInterrupted: On Ctrl-C, with what has finished.
      ExecutorError: If the executor breaks or cannot be reached, with what has finished.
      MemoryError: If a call does not fit into memory, with a ``chunk_size`` to try.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> def train(learning_rate, key):
      ...     x = jax.random.normal(key)
      ...     for _ in range(3):
      ...         x = x - learning_rate * x  # gradient descent on x²/2
      ...     return {"loss": x**2 / 2}
      >>> result = sweep(train, [0.1, 1.0, 3.0], seeds=2, progress=False)
      >>> result.metrics["loss"].shape
      (3, 2)
      >>> bool((result.metrics["loss"][1] == 0).all())
      True
    """
    return run_grid(
        train,
        make_grid(learning_rates, seeds),
        strategy=strategy,
        chunk_size=chunk_size,
        devices=devices,
        progress=progress,
        resume=resume,
        label=label,
        context=context,
        minutes=minutes,
        executor=executor,
    )
