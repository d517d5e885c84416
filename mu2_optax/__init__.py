"""μ² (double momentum) optimizers for JAX, as Optax transforms.

The gradient estimate gets less noisy as training goes on, so that one learning rate works over
orders of magnitude. Submodules: `lmo` (linear minimization oracles), `theory` (the theorems as
functions), `stopping`, `estimates` (of operators other than the gradient); and, loaded on first
use, `nnx` and `linen` (Flax), and `sweep`.
"""

import importlib as _importlib
import importlib.metadata as _metadata
import typing as _typing

from mu2_optax import estimates as estimates
from mu2_optax import lmo as lmo
from mu2_optax import stopping as stopping
from mu2_optax import theory as theory
from mu2_optax._gradients.evaluate import value_and_grad as value_and_grad
from mu2_optax._optimizers.adam import mu2_adam as mu2_adam
from mu2_optax._optimizers.anytime_sgd import anytime_sgd as anytime_sgd
from mu2_optax._optimizers.auto import mu2_auto as mu2_auto
from mu2_optax._optimizers.extra_sgd import mu2_extra_sgd as mu2_extra_sgd
from mu2_optax._optimizers.frank_wolfe import frank_wolfe as frank_wolfe
from mu2_optax._optimizers.frank_wolfe import mu2_frank_wolfe as mu2_frank_wolfe
from mu2_optax._optimizers.mu2 import mu2 as mu2
from mu2_optax._optimizers.mu2 import mu2_sgd as mu2_sgd
from mu2_optax._optimizers.storm import storm as storm
from mu2_optax._paper.averaging import anytime as anytime
from mu2_optax._paper.estimate import corrected_momentum as corrected_momentum
from mu2_optax._paper.measured import measured_beta as measured_beta
from mu2_optax._paper.measured import with_error_bar as with_error_bar
from mu2_optax._paper.momenta import DoubleMomentum as DoubleMomentum
from mu2_optax._paper.momenta import fixed_momentum as fixed_momentum
from mu2_optax._paper.momenta import linear_momentum as linear_momentum
from mu2_optax._paper.momenta import polynomial_momentum as polynomial_momentum
from mu2_optax._paper.projections import onto_l2_ball as onto_l2_ball
from mu2_optax._paper.projections import per_tensor as per_tensor
from mu2_optax._paper.projections import projected as projected
from mu2_optax._rate.directions import unit_directions as unit_directions
from mu2_optax._rate.distance import distance_rate as distance_rate
from mu2_optax._rate.query import query_point as query_point
from mu2_optax._reading.error_bar import error_bar as error_bar
from mu2_optax._reading.find import eval_params as eval_params
from mu2_optax._reading.find import found_rate as found_rate
from mu2_optax._wrappers.accumulate_gradients import accumulate_gradients as accumulate_gradients
from mu2_optax._wrappers.checked import checked as checked
from mu2_optax._wrappers.hold_fixed import hold_fixed as hold_fixed
from mu2_optax._wrappers.reject_nonfinite import reject_nonfinite as reject_nonfinite
from mu2_optax._wrappers.show_average import show_average as show_average

if _typing.TYPE_CHECKING:
    from mu2_optax import linen as linen
    from mu2_optax import nnx as nnx
    from mu2_optax import sweep as sweep

__version__ = _metadata.version("mu2-optax")

_LOADED_ON_FIRST_USE = ("linen", "nnx", "sweep")


def __getattr__(name: str) -> _typing.Any:
    """Loads the submodules that need an extra, or that most programs do not use."""
    if name in _LOADED_ON_FIRST_USE:
        return _importlib.import_module(f"mu2_optax.{name}")
    raise AttributeError(f"module 'mu2_optax' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, without the private modules and imports that are attributes too."""
    public = {name for name in globals() if not name.startswith("_")}
    return sorted(public | {"__version__", *_LOADED_ON_FIRST_USE})
