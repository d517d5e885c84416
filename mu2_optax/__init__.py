"""μ² (double momentum) optimizers for JAX, as Optax transforms.

The gradient estimate gets less noisy as training goes on, so that one learning rate works over
orders of magnitude.
"""

from mu2_optax.anytime import AnytimeState as AnytimeState
from mu2_optax.anytime import anytime as anytime
from mu2_optax.corrected import CorrectedMomentumState as CorrectedMomentumState
from mu2_optax.corrected import corrected_momentum as corrected_momentum
from mu2_optax.extragradient import Mu2ExtraState as Mu2ExtraState
from mu2_optax.extragradient import mu2_extra_sgd as mu2_extra_sgd
from mu2_optax.frank_wolfe import frank_wolfe as frank_wolfe
from mu2_optax.frank_wolfe import mu2_frank_wolfe as mu2_frank_wolfe
from mu2_optax.gradients import accumulate as accumulate
from mu2_optax.gradients import bind as bind
from mu2_optax.gradients import grad_pair as grad_pair
from mu2_optax.guard import RejectNonfiniteState as RejectNonfiniteState
from mu2_optax.guard import reject_nonfinite as reject_nonfinite
from mu2_optax.momentum import DoubleMomentum as DoubleMomentum
from mu2_optax.momentum import fixed_momentum as fixed_momentum
from mu2_optax.momentum import linear_momentum as linear_momentum
from mu2_optax.momentum import polynomial_momentum as polynomial_momentum
from mu2_optax.momentum import uniform_momentum as uniform_momentum
from mu2_optax.momentum import weighted_momentum as weighted_momentum
from mu2_optax.optimizers import Mu2State as Mu2State
from mu2_optax.optimizers import anytime_sgd as anytime_sgd
from mu2_optax.optimizers import mu2 as mu2
from mu2_optax.optimizers import mu2_sgd as mu2_sgd
from mu2_optax.optimizers import storm as storm
from mu2_optax.projections import l2_ball as l2_ball
from mu2_optax.projections import per_tensor as per_tensor
from mu2_optax.projections import projected as projected
from mu2_optax.ratio import WeightRatio as WeightRatio

__version__ = "0.1.0"
