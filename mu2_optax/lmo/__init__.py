r"""Linear minimization oracles: the point of a compact set that lies furthest against a direction.

An oracle is any function from tree to tree, :math:`d \mapsto \arg\min_{v \in K} \langle d, v
\rangle`. All oracles here follow two rules. A zero direction, for which every point is a minimizer,
gives the centre of the set. A direction that is not finite gives NaN, never a plausible point, so
that :func:`mu2_optax.reject_nonfinite` can see it. Use :func:`mu2_optax.per_tensor` around any of
them to give every tensor a set of its own. All but the spectral ball are in Jaggi, `Revisiting
Frank-Wolfe <https://proceedings.mlr.press/v28/jaggi13.html>`_, ICML 2013.
"""

from mu2_optax.lmo._sets import l1_ball as l1_ball
from mu2_optax.lmo._sets import l2_ball as l2_ball
from mu2_optax.lmo._sets import linf_ball as linf_ball
from mu2_optax.lmo._sets import simplex as simplex
from mu2_optax.lmo._sets import spectral_ball as spectral_ball
