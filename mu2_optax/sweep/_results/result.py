"""Goes away with the rooms that still import it."""

from mu2_optax.sweep._result import Results as Results
from mu2_optax.sweep._result import SweepResult as SweepResult
from mu2_optax.sweep._result import by_label as by_label
