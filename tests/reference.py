"""The paper's algorithms as float64 NumPy loops, in the paper's letters.

Nothing here is shared with the package: weights are lists over t = 1, 2, ..., and γ is the ratio of
α to its running sum, by definition. ``grad(x, z)`` is the stochastic gradient, ``proj`` is Π.
Every function returns the point x_t after each step, t = 2, ..., T + 1 for Algorithm 1 and
t = 1, ..., T for Algorithm 2, which is what an optimizer's params are after each update.
"""

import math

import numpy as np


class Weights:
    """α_t, β_t and γ_t for t = 1, ..., T + 1; index with the paper's t."""

    def __init__(self, alpha, beta, gamma, T):
        ts = range(1, T + 2)
        self._alpha = [float(alpha(t)) for t in ts]
        self._beta = [float(beta(t)) for t in ts]
        if gamma is None:  # γ_t = α_t / α_{1:t}; where the sum is still 0, x_t is w_t
            sums = np.cumsum(np.array(self._alpha))
            self._gamma = [a / s if s > 0 else 1.0 for a, s in zip(self._alpha, sums, strict=True)]
        else:
            self._gamma = [float(gamma(t)) for t in ts]

    def alpha(self, t):
        return self._alpha[t - 1]

    def beta(self, t, g=None, g_prev=None, d=None, share=1.0):
        return self._beta[t - 1]

    def gamma(self, t):
        return self._gamma[t - 1]


class MeasuredWeights(Weights):
    """Linear α and γ, and the β of a filter that measures its error, block by block of x."""

    def __init__(self, T, blocks):
        super().__init__(lambda t: t, lambda t: 1, None, T)
        self._blocks = blocks
        self.errors, self.noises = {}, {}

    def beta(self, t, g=None, g_prev=None, d=None, share=1.0):
        if t == 1:
            return 1.0
        if t == 2:  # a new run
            self._memory = [{"S": 0.0, "R": 0.0, "P": None} for _ in self._blocks]
        betas = np.zeros_like(g)
        for block, m in zip(self._blocks, self._memory, strict=True):
            innovation = np.sum((g_prev[block] - d[block]) ** 2)
            change = np.sum((g[block] - g_prev[block]) ** 2)
            n = t - 1
            P = innovation * share / (1 + share) if t == 2 else m["P"]
            m["S"] += (innovation - m["S"]) / min(n, 10)
            P = max(P, m["S"] - 3 * (m["R"] / share + P))
            R = m["R"] + (share * (innovation - P) - m["R"]) / min(n, 100)
            R = max(R, share * m["S"] / 10)
            beta = (P + change) / (P + change + R)
            m["P"], m["R"] = (1 - beta) * (P + change), R
            betas[block] = beta
        self.errors[t] = [m["P"] for m in self._memory]
        self.noises[t] = [m["R"] for m in self._memory]
        return betas


def linear(offset, T):
    return Weights(lambda t: t + offset, lambda t: 1 / (t + max(offset, 0)), None, T)


def uniform(T):
    return Weights(lambda t: 1, lambda t: 1 / t, None, T)


def polynomial(power, T):
    def alpha(t):  # the rising factorial, by its definition as a ratio of gamma functions
        return math.exp(math.lgamma(t + power) - math.lgamma(t) - math.lgamma(1 + power))

    return Weights(alpha, lambda t: 1 / t, None, T)


def fixed(gamma, beta, T):
    return Weights(lambda t: 1, lambda t: beta, lambda t: gamma, T)


def corrected(grad, t, x, x_prev, z, d, weights, part):
    """d_t from d_{t-1}; ``part`` has the samples of z on which the change is measured."""
    if part is None:
        g, g_prev = grad(x, z), grad(x_prev, z)
        return g + (1 - weights.beta(t, g, g_prev, d)) * (d - g_prev)
    S = part(z)
    g, g_prev = grad(x, S), grad(x_prev, S)
    beta = weights.beta(t, g, g_prev, d, len(S) / len(z))
    return beta * grad(x, z) + (1 - beta) * (d + g - g_prev)


def mu2_sgd(grad, x1, zs, eta, weights, proj, weighted, part=None):
    """Algorithm 1."""
    x, w = x1.copy(), x1.copy()
    d = grad(x, zs[0])
    points = []
    for t in range(1, len(zs) + 1):
        step = eta * weights.alpha(t) if weighted else eta
        w = proj(w - step * d)
        x_new = x + weights.gamma(t + 1) * (w - x)
        points.append(x_new)
        if t < len(zs):
            d = corrected(grad, t + 1, x_new, x, zs[t], d, weights, part)
        x = x_new
    return np.array(points)


def mu2_extra_sgd(grad, y0, zs, eta, weights, proj, weighted):
    """Algorithm 2."""
    x, y = y0.copy(), y0.copy()  # x_0 has no weight where γ_1 = 1
    d = g_tilde = grad(y, zs[0])
    points = []
    for t in range(1, len(zs) + 1):
        z = zs[t - 1]
        step = eta * weights.alpha(t) if weighted else eta
        if t > 1:
            g_tilde = grad(x, z)
        x_hat = x + weights.gamma(t) * (y - x)
        g_hat = grad(x_hat, z)
        beta = weights.beta(t, g_hat, g_tilde, d)
        d_hat = g_hat + (1 - beta) * (d - g_tilde)
        w = proj(y - step * d_hat)
        x = x + weights.gamma(t) * (w - x)
        d = grad(x, z) + (1 - beta) * (d - g_tilde)
        y = proj(y - step * d)
        points.append(x)
    return np.array(points)


def mu2_extra_sgd_in_parts(grad, y0, zs, eta, weights, proj, weighted, part, hint=None):
    """Algorithm 2, whose changes of the gradient are measured on parts of z.

    That of the estimate on ``part``; with a ``hint``, that of the hint on samples of its own, the
    first ``hint`` of z, and ``part`` is one of the others.
    """
    x, y, d = y0.copy(), y0.copy(), 0.0
    points = []
    for t in range(1, len(zs) + 1):
        z = zs[t - 1]
        step = eta * weights.alpha(t) if weighted else eta
        S = part(z if hint is None else z[hint:])
        H, before = (S, grad(x, z)) if hint is None else (z[:hint], grad(x, z[:hint]))
        x_hat = x + weights.gamma(t) * (y - x)
        g_hat = before + grad(x_hat, H) - grad(x, H)
        beta = 1 if t == 1 else weights.beta(t, g_hat, before, d, len(H) / len(z) if hint else 1)
        d_hat = g_hat + (1 - beta) * (d - before)
        w = proj(y - step * d_hat)
        x_next = x + weights.gamma(t) * (w - x)
        d = beta * grad(x, z) + (1 - beta) * d + grad(x_next, S) - grad(x, S)
        x = x_next
        y = proj(y - step * d)
        points.append(x)
    return np.array(points)


def storm(grad, x1, zs, eta, weights, proj, weighted, part=None):
    """STORM with a projection; its steps have no weights."""
    del weighted
    x = x1.copy()
    d = grad(x, zs[0])
    points = []
    for t in range(1, len(zs) + 1):
        x_new = proj(x - eta * d)
        points.append(x_new)
        if t < len(zs):
            d = corrected(grad, t + 1, x_new, x, zs[t], d, weights, part)
        x = x_new
    return np.array(points)


def anytime_sgd(grad, x1, zs, eta, weights, proj, weighted):
    """Anytime-SGD."""
    x, w = x1.copy(), x1.copy()
    points = []
    for t in range(1, len(zs) + 1):
        step = eta * weights.alpha(t) if weighted else eta
        w = proj(w - step * grad(x, zs[t - 1]))
        x = x + weights.gamma(t + 1) * (w - x)
        points.append(x)
    return np.array(points)


def mu2(grad, x1, zs, step, weights):
    """Double momentum around any ``step(t, d, w)``, which returns the next w."""
    x, w = x1.copy(), x1.copy()
    d = grad(x, zs[0])
    points = []
    for t in range(1, len(zs) + 1):
        w = step(t, d, w)
        x_new = x + weights.gamma(t + 1) * (w - x)
        points.append(x_new)
        if t < len(zs):
            z = zs[t]  # z_{t+1}
            d = grad(x_new, z) + (1 - weights.beta(t + 1)) * (d - grad(x, z))
        x = x_new
    return np.array(points)


def adamw_step(eta, b2, eps, decay):
    """Adam without a first moment, and with decoupled weight decay, as a ``step`` of mu2."""
    v = 0.0

    def step(t, d, w):
        nonlocal v
        v = b2 * v + (1 - b2) * d**2
        v_hat = v / (1 - b2**t)
        return w - eta * (d / (np.sqrt(v_hat) + eps) + decay * w)

    return step


def exploded(g, s, weight):
    """p v³: v is the mean of |g|/√((1 − a) s² + a g²) over the share p that has had a gradient."""
    seen = np.broadcast_to(s > 0, g.shape)
    if not seen.any():
        return 0.0
    ratios = (np.abs(g) / np.sqrt((1 - weight) * s**2 + weight * g**2))[seen]
    return np.mean(seen) * np.mean(ratios) ** 3


def unit_by_coordinate():
    """Directions g/s by coordinate: zeros do not count, and outliers count as 10 s."""
    s = None

    def unit(t, g):
        nonlocal s
        weight = 3 / (t + 2)
        s = np.zeros_like(g) if s is None else s
        unit.exploded = exploded(g, s, weight)
        seen = s > 0
        g = np.where(seen, np.clip(g, -10 * s, 10 * s), g)
        mean = np.sqrt(np.where(seen, s**2 + weight * (g**2 - s**2), g**2))
        s = np.where(g == 0, s, mean)
        unit.s = s
        return g / np.where(s > 0, s, 1)

    unit.s = np.zeros(())
    return unit


def unit_together():
    """The gradient over one number, its root mean square over steps and coordinates."""
    scaled = unit_by_coordinate()

    def unit(t, g):
        size = np.sqrt(np.mean(g**2))
        return scaled(t, np.array(size)) * g / size

    unit.exploded = 0
    return unit


def unit_spectral():
    """√max(a, b) ‖m‖/s times U f(Σ) Wᵀ, with f = p ∘ p ∘ p of Muon's polynomial p.

    Here U Σ Wᵀ is m, the gradient with a momentum of 0.7, which makes noise walk further; and the
    mean of f(Σ)², the rank, counts as at least 0.1: ``unit.rank`` times.
    """
    scaled = unit_by_coordinate()
    m = 0.0

    def unit(t, g):
        nonlocal m
        unit.exploded = exploded(g, scaled.s / g.size**0.5, 3 / (t + 2))
        m = g + 0.7 * m
        u, sizes, wt = np.linalg.svd(m, full_matrices=False)
        norm = np.sqrt(np.sum(sizes**2))
        sizes = sizes / norm
        for _ in range(3):
            sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
        unit.rank = max(0.1 / np.mean(sizes**2), 1)
        return max(g.shape) ** 0.5 * scaled(t, np.array(norm)) * (u * sizes) @ wt

    unit.of_noise = 0.6
    return unit


def mu2_auto(grad, x1, zs, proj, size, factor=1.0, decay=0.0, unit=None):
    """The optimizer with nothing to choose, for params of a given size.

    It keeps x and y, and w follows from them. ``unit`` makes directions; φ is their correlation
    from step to step, less that of noise. Returns the averages x_{t+1}, the points y_{t+1} where
    gradients are taken, and the rates η_t.
    """
    unit = unit or unit_by_coordinate()
    of_noise = getattr(unit, "of_noise", 0.0)
    x, y = x1.copy(), x1.copy()
    rho, G = min(factor * 0.1, 0.2), 0.0  # in units of the size
    lam, last, product, square = 0.3, 0.0, 0.0, 0.0
    xs, ys, etas = [], [], []
    for t in range(1, len(zs) + 1):
        w = x + (y - x) / lam
        g = grad(y, zs[t - 1])
        u = unit(t, g)
        if t > 1:
            excess = np.mean(u * last) / of_noise - np.mean(u**2) if of_noise else np.mean(u * last)
            product += 3 / (t + 2) * (excess - product)
            square += 3 / (t + 2) * (np.mean(u**2) - square)
        phi = product / square if square else 0.0
        last, q = u, np.clip(-phi, 0, 1)
        rho = max(rho, np.sqrt(np.mean((x - x1) ** 2)) / size)
        walk = (
            np.clip(0.6 * (1 + phi), 0.3, 0.7)
            if of_noise
            else np.clip(phi, 0, 0.7 * min(rho, 1) ** 2)
        )
        energy = np.mean(u**2) * getattr(unit, "rank", 1) * (1 + walk) / (1 - walk)
        G += rho**2 * max(energy, unit.exploded)
        eta = np.sqrt(7) / 3 * size * rho**2 / np.sqrt(G)
        lam_w = decay * (g != 0) / (1 + (q / 0.05) ** 2)
        w = proj(w - eta * (u + lam_w * w) / (1 + eta * lam_w))
        x = (t * x + 3 * w) / (t + 3)  # the mean of w_1, ..., w_{t+1} with weights s(s+1)/2
        lam = max(0.3 * (1 + t / 50) ** (-1.5 * q), 1 / (t + 3))
        y = x + lam * (w - x)
        xs.append(x)
        ys.append(y)
        etas.append(eta)
    return np.array(xs), np.array(ys), np.array(etas)
