r"""The paper's theorems as functions: learning rates, batch sizes, bounds and stability.

Letters: L is the smoothness of every :math:`f(\cdot; z)`, D the diameter of the compact set, σ² the
variance of the gradient, :math:`\sigma_L^2` that of the smoothness, T the number of steps, and
:math:`\tilde\sigma^2 = 32 D^2 \sigma_L^2 + 2\sigma^2`. The functions ``measure_*``
measure L, σ² and :math:`\sigma_L^2` on data. Constants are those of the proofs; where the paper
has only an O(·), the docstring says so. The paper is Dahan and Levy, `Do Stochastic, Feel Noiseless
<https://arxiv.org/abs/2304.04172>`_, ICLR 2025.
"""

from mu2_optax.theory._bounds import error_bound as error_bound
from mu2_optax.theory._bounds import excess_loss_bound as excess_loss_bound
from mu2_optax.theory._bounds import frank_wolfe_bound as frank_wolfe_bound
from mu2_optax.theory._bounds import high_probability_error_bound as high_probability_error_bound
from mu2_optax.theory._constants import measure_gradient_variance as measure_gradient_variance
from mu2_optax.theory._constants import measure_sample_smoothness as measure_sample_smoothness
from mu2_optax.theory._constants import measure_smoothness as measure_smoothness
from mu2_optax.theory._constants import measure_smoothness_variance as measure_smoothness_variance
from mu2_optax.theory._dynamic import dynamic_batches as dynamic_batches
from mu2_optax.theory._dynamic import run_dynamic as run_dynamic
from mu2_optax.theory._rates import batch_size as batch_size
from mu2_optax.theory._rates import effective_variance as effective_variance
from mu2_optax.theory._rates import max_learning_rate as max_learning_rate
from mu2_optax.theory._rates import stable_rates as stable_rates
