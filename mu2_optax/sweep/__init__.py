"""Sweeps over learning rates and seeds in one compiled call, with measures and pictures.

`sweep` runs a function of (learning_rate, key) over a grid, and `halving` runs only the best rates
to the end; `stability_range`, `plateau_width` and `lr_sensitivity` say how much the learning rate
matters; `plot_sweep` shows it; `load_digits` and `load_mnist` are data to try it on. On the command
line: ``mu2-sweep``.
"""

from mu2_optax.sweep._cells import merge as merge
from mu2_optax.sweep._charts import plot_curves as plot_curves
from mu2_optax.sweep._charts import plot_sweep as plot_sweep
from mu2_optax.sweep._data import Data as Data
from mu2_optax.sweep._data import load_digits as load_digits
from mu2_optax.sweep._data import load_mnist as load_mnist
from mu2_optax.sweep._engine import SweepInterrupted as SweepInterrupted
from mu2_optax.sweep._engine import sweep as sweep
from mu2_optax.sweep._files import load_results as load_results
from mu2_optax.sweep._files import save_results as save_results
from mu2_optax.sweep._files import write_csv as write_csv
from mu2_optax.sweep._halving import halving as halving
from mu2_optax.sweep._measures import Measure as Measure
from mu2_optax.sweep._measures import lr_sensitivity as lr_sensitivity
from mu2_optax.sweep._measures import plateau_width as plateau_width
from mu2_optax.sweep._measures import stability_range as stability_range
from mu2_optax.sweep._page import write_report as write_report
from mu2_optax.sweep._result import SweepResult as SweepResult
