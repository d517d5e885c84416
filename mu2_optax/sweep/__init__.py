"""Sweeps over learning rates and seeds in one compiled call, with measures and pictures.

`sweep` runs a function of (learning_rate, key) over a grid; `stability_range`, `plateau_width` and
`lr_sensitivity` say how much the learning rate matters; `plot_sweep` shows it. On the command line:
``mu2-sweep``, or ``python -m mu2_optax.sweep``.
"""

from mu2_optax.sweep.engine import SweepInterrupted as SweepInterrupted
from mu2_optax.sweep.engine import sweep as sweep
from mu2_optax.sweep.measures import LearningRateSensitivity as LearningRateSensitivity
from mu2_optax.sweep.measures import PlateauWidth as PlateauWidth
from mu2_optax.sweep.measures import StabilityRange as StabilityRange
from mu2_optax.sweep.measures import lr_sensitivity as lr_sensitivity
from mu2_optax.sweep.measures import plateau_width as plateau_width
from mu2_optax.sweep.measures import stability_range as stability_range
from mu2_optax.sweep.merge import merge as merge
from mu2_optax.sweep.merge import merge_results as merge_results
from mu2_optax.sweep.plots import plot_curves as plot_curves
from mu2_optax.sweep.plots import plot_sweep as plot_sweep
from mu2_optax.sweep.result import SweepResult as SweepResult
from mu2_optax.sweep.statistics import metric_mode as metric_mode
from mu2_optax.sweep.storage import load_results as load_results
from mu2_optax.sweep.storage import save_results as save_results
