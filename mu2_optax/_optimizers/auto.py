"""Nothing to choose: a learning rate that the run itself finds, inside anytime averaging."""

from mu2_optax._internal.masks import Mask
from mu2_optax._internal.types import Scalar, ScalarOrSchedule, Transform
from mu2_optax._paper.averaging import AnytimeState, anytime
from mu2_optax._paper.momenta import polynomial_momentum
from mu2_optax._paper.projections import Projection
from mu2_optax._rate.directions import unit_directions
from mu2_optax._rate.distance import POWER, distance_rate
from mu2_optax._rate.query import query_point


def mu2_auto(
    learning_rate: None = None,
    *,
    first_step: Scalar = 1.0,
    spectral: Mask = False,
    weight_decay: ScalarOrSchedule | None = None,
    weight_decay_mask: Mask | None = None,
    projection: Projection | None = None,
    steps: int | None = None,
) -> Transform[AnytimeState]:
    r"""Nothing to choose: no learning rate, no schedule, no momenta; one gradient a step.

    .. math::
      g_t &= \nabla f(y_t; z_t), \qquad u_t = g_t / s_t, \qquad
      s_t^2 = s_{t-1}^2 + \tfrac{3}{t+2}\,(g_t^2 - s_{t-1}^2) \\
      \rho_t &= \max\bigl(\rho_{t-1}, \|x_t - w_1\|\bigr), \qquad
      G_t = G_{t-1} + \rho_t^2\,\|u_t\|^2, \qquad
      \eta_t = \tfrac{\sqrt 7}{3}\,\rho_t^2 / \sqrt{G_t} \\
      w_{t+1} &= \Pi\Bigl(w_t - \frac{\eta_t}{1 + \eta_t \lambda}\,(u_t + \lambda w_t)\Bigr) \\
      x_{t+1} &= x_t + \tfrac{3}{t + 3}\,(w_{t+1} - x_t), \qquad
      y_{t+1} = x_{t+1} + 0.3\,(1 + t/50)^{-1.5\,q_t}\,(w_{t+1} - x_{t+1}) \\
      q_t &= \max\Bigl(0,\, -\sum_i i^2\,u_i \cdot u_{i-1} \Big/ \sum_i i^2\,\|u_i\|^2\Bigr)

    Call it like ``optax.adam``: ``updates, state = tx.update(grads, state, params)``. The params
    are y, where the loop takes its gradients anyway. **Evaluate, save and export the average x**:
    ``mu2_optax.eval_params(state, params)``.

    The step of every coordinate has the size of the learning rate, as in Adam. The rate is how far
    the average has come, over the root of the number of steps, so that noise alone does not change
    it (see :func:`distance_rate`). And q says what limits the run. Under noise, successive
    directions have nothing to do with each other: q is 0, and gradients are taken a good way ahead
    of the average. Without noise they turn back, because the rate is as long as the curvature
    allows: q is nearly 1, and gradients are taken at the average, where accelerated methods take
    them. Scaling the loss changes nothing, and the number of steps need not be known. ``mu2_auto``
    is the composition of :func:`anytime`, :func:`query_point`, :func:`distance_rate` and
    :func:`unit_directions`.

    Args:
      learning_rate: There is none; whatever is passed here is refused.
      first_step: A factor on the first distance :math:`\rho_1`. It is not a learning rate. Less
        than 1 delays the start, but only by a few steps, because the distance grows; more than 2
        counts as 2, because a longer first step would wreck a network.
      spectral: True, or a mask of the matrices whose steps are to be orthogonal matrices, as in
        Muon, instead of :math:`g_t/s_t`. It is the better choice for most networks, dense ones
        included, at the price of more matrix products in a step.
      weight_decay: λ: decoupled decay of w, times the learning rate, as in AdamW, but only of
        coordinates that have a gradient, and less of it where curvature limits the run (see
        :func:`distance_rate`). Any size is stable. 0.1 is a good value for networks that see their
        data more than once. On a stream of new data it is a bias, so there is none by default.
      weight_decay_mask: Which leaves decay: a tree of booleans like params, or a function from
        params to one.
      projection: A function from tree to tree that projects w onto the set. The gradient is then
        divided by one number instead of coordinate by coordinate, because after steps in another
        geometry a Euclidean projection would not lead to the minimum.
      steps: T, if it is known and nobody will call ``eval_params``: after step T the params *are*
        the average. Before, everything is as it is without ``steps``. A run that goes on does so
        from there, and ``eval_params`` is right at any time.

    Returns:
      A transform whose state is an :class:`AnytimeState` around a :class:`DistanceRateState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda params, batch: jnp.sum((params - batch) ** 2))
      >>> tx = mu2_optax.mu2_auto()
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     updates, state = tx.update(grad_fn(params, batch), state, params)
      ...     return optax.apply_updates(params, updates), state
      >>> for batch in jax.random.normal(jax.random.key(0), (1000, 2)):
      ...     params, state = step(params, state, batch)
      >>> average = mu2_optax.eval_params(state, params)
      >>> bool(jnp.linalg.norm(average) < 0.2)
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR
      2025, and Defazio et al., `The Road Less Scheduled <https://arxiv.org/abs/2405.15682>`_,
      NeurIPS 2024, for gradients at the average or near it; Khaled, Mishchenko and
      Jin, `DoWG Unleashed <https://arxiv.org/abs/2305.16284>`_, NeurIPS 2023, for the rate
    """
    if learning_rate is not None:
        raise TypeError(
            f"`mu2_auto` takes no learning rate, got {learning_rate!r}: it finds one. Leave it out."
        )
    rate = distance_rate(
        unit_directions(spectral, together=projection is not None),
        first_step=first_step,
        weight_decay=weight_decay,
        weight_decay_mask=weight_decay_mask,
    )
    return anytime(
        rate,
        polynomial_momentum(POWER).gamma,
        ahead=query_point(steps),
        projection=projection,
    )
