"""Linear minimization oracles and Frank-Wolfe."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from problems import run

import mu2_optax
from mu2_optax import frank_wolfe, lmo, mu2_frank_wolfe

TREE = {"a": np.zeros((3, 2), np.float32), "b": np.zeros(4, np.float32)}
CENTER = {"a": np.full((3, 2), 0.5, np.float32), "b": np.arange(4, dtype=np.float32)}


def of_vector(vector):
    """The inverse of ``ravel_pytree``, for a tree like ``TREE``."""
    return {"a": vector[:6].reshape(3, 2), "b": vector[6:]}


def spectral_projection(radius):
    def project(leaf):
        matrix = leaf if leaf.ndim >= 2 else leaf.reshape(-1, 1)
        u, s, vh = jnp.linalg.svd(matrix, full_matrices=False)
        return ((u * jnp.minimum(s, radius)) @ vh).reshape(leaf.shape)

    return lambda tree: jax.tree.map(project, tree)


def around(projection, center):
    return lambda tree: optax.tree.add(projection(optax.tree.sub(tree, center)), center)


PROJECTIONS = optax.projections
CASES = {
    "l2": (lmo.l2_ball(2.0), mu2_optax.onto_l2_ball(2.0)),
    "l2 around": (lmo.l2_ball(2.0, CENTER), mu2_optax.onto_l2_ball(2.0, CENTER)),
    "per tensor": (
        mu2_optax.per_tensor(lmo.l2_ball(2.0)),
        mu2_optax.per_tensor(mu2_optax.onto_l2_ball(2.0)),
    ),
    "linf": (lmo.linf_ball(0.5), lambda tree: PROJECTIONS.projection_linf_ball(tree, 0.5)),
    "linf around": (
        lmo.linf_ball(0.5, CENTER),
        around(lambda tree: PROJECTIONS.projection_linf_ball(tree, 0.5), CENTER),
    ),
    "l1": (lmo.l1_ball(3.0), lambda tree: PROJECTIONS.projection_l1_ball(tree, 3.0)),
    "simplex": (lmo.simplex(2.0), lambda tree: PROJECTIONS.projection_simplex(tree, 2.0)),
    "spectral svd": (lmo.spectral_ball(1.5), spectral_projection(1.5)),
    "spectral newton-schulz": (
        lmo.spectral_ball(1.5, iterations=30),
        spectral_projection(1.5),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lmo_is_the_minimizer_over_its_set(case):
    oracle, projection = CASES[case]
    vertex = oracle(TREE)
    away = optax.tree.sub(projection(vertex), vertex)
    assert float(optax.tree.norm(away)) < 1e-4  # it lies in K

    # no worse than random points of K, inside and on the border
    def excess(pair):
        d, v = map(of_vector, pair)
        return optax.tree.vdot(d, oracle(d)) - optax.tree.vdot(d, projection(v))

    pairs = np.random.default_rng(0).normal(size=(64, 2, 10)).astype(np.float32)
    pairs[:, 1] *= np.logspace(-1, 2, 64, dtype=np.float32)[:, None]
    assert np.max(jax.jit(jax.vmap(excess))(pairs)) < 1e-3


@pytest.mark.parametrize("case", CASES)
def test_lmo_ignores_scale_and_takes_zero_and_nan(case):
    oracle, projection = CASES[case]
    d = np.random.default_rng(1).normal(size=10)
    seventh = np.arange(10) == 7
    directions = np.stack(
        [
            d,
            1e-30 * d,
            1e30 * d,
            d / np.max(np.abs(d)) * 3e38,  # the inverse of which is subnormal
            0 * d,
            np.where(seventh, np.nan, d),
            np.where(seventh, np.inf, d),
        ]
    ).astype(np.float32)  # squares of the second, third and fourth under- and overflow

    @jax.jit
    @jax.vmap
    def point(direction):
        v = oracle(of_vector(direction))
        away = optax.tree.norm(optax.tree.sub(projection(v), v))
        return ravel_pytree(v)[0], away

    points, away = map(np.asarray, point(directions))
    np.testing.assert_allclose(points[1], points[0], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(points[2], points[0], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(points[3], points[0], rtol=2e-4, atol=2e-4)
    assert away[4] < 1e-6
    assert np.all(np.any(np.isnan(points[5:]), axis=1))
    narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), TREE)
    shapes = jax.eval_shape(oracle, narrow)
    assert {a.dtype for a in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.bfloat16)}


def test_lmo_gives_the_known_point():
    d, one = np.array([3.0, -4.0], np.float32), np.ones(2, np.float32)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]], np.float32)
    tall, eye = np.eye(4, 2, dtype=np.float32), np.eye(2, dtype=np.float32)

    @jax.jit
    def points(d, *matrices):
        vectors = [
            lmo.l2_ball(10.0)(d),
            lmo.l2_ball(10.0, one)(d),
            lmo.linf_ball(2.0)(d),
            lmo.l1_ball(2.0)(d),
            lmo.simplex(2.0)(d),
            lmo.simplex()(0 * d),
        ]
        balls = [lmo.spectral_ball(3.0, iterations=iterations) for iterations in (None, 30)]
        return vectors, [[ball(matrix) for matrix in matrices] for ball in balls]

    sizes = np.array([5.0, 0.2], np.float32)
    vectors, matrices = points(d, turn * sizes, tall * sizes, np.stack([eye, 2 * eye]))
    expected = [[-6.0, 8.0], [-5.0, 9.0], [-2.0, 2.0], [0.0, 2.0], [0.0, 2.0], [0.5, 0.5]]
    rounding = [1e-6, 1e-6, 1e-7, 1e-7, 1e-7, 1e-7]  # only balls of ℓ₂ take a norm
    for found, vector, rtol in zip(vectors, expected, rounding, strict=True):
        np.testing.assert_allclose(found, vector, rtol=rtol)
    # every singular value of a rotation times a diagonal becomes the radius
    for found in matrices:
        for point, factor in zip(found, (turn, tall, np.stack([eye, eye])), strict=True):
            np.testing.assert_allclose(point, -3 * factor, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_spectral_ball_newton_schulz_takes_complex_matrices(shape):
    re, im = np.random.default_rng(0).normal(size=(2, *shape))
    d = (re + 1j * im).astype(np.complex64)
    exact = jax.jit(lmo.spectral_ball(2.0))(d)
    found = jax.jit(lmo.spectral_ball(2.0, iterations=30))(d)
    np.testing.assert_allclose(found, exact, atol=1e-4)
    np.testing.assert_allclose(np.linalg.svd(found, compute_uv=False), 2, atol=1e-4)


def test_spectral_ball_newton_schulz_stays_in_the_set():
    d = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    smallest = []
    for iterations in (1, 2, 5, 20):
        oracle = lmo.spectral_ball(1.0, iterations=iterations)
        singular = np.linalg.svd(jax.jit(oracle)(d), compute_uv=False)
        assert float(singular[0]) <= 1 + 1e-5
        smallest.append(float(singular[-1]))
    assert smallest == sorted(smallest)
    assert smallest[0] < 0.9
    assert smallest[-1] == pytest.approx(1, abs=1e-4)


def test_lmo_refuses_bad_arguments():
    with pytest.raises(ValueError, match="`radius` must be finite and not negative, got -1"):
        lmo.l1_ball(-1)
    with pytest.raises(ValueError, match="`iterations` must be an integer of at least 1, got 0"):
        lmo.spectral_ball(1.0, iterations=0)
    with pytest.raises(ValueError, match="`center` must have the structure"):
        lmo.l2_ball(1.0, np.ones(3))(np.ones(4))
    with pytest.raises(TypeError, match="`lmo` must be a function"):
        frank_wolfe(1.0)
    tx = mu2_frank_wolfe(lambda d: d["a"])
    with pytest.raises(ValueError, match=r"`lmo\(d\)` must have the structure and shapes"):
        jax.eval_shape(lambda tree: tx.update(tree, tx.init(tree), tree, prev_grads=tree), TREE)
    with pytest.raises(ValueError, match="`params` must be given"):
        frank_wolfe(lmo.l2_ball(1.0)).update(TREE, optax.EmptyState())


GRAD = jax.grad(lambda x, z: 0.5 * jnp.sum((x - 0.3 - z) ** 2))


def test_frank_wolfe_averaged_is_the_classical_iterate():
    # classical Frank-Wolfe on a deterministic loss: x <- x + 2/(t + 2) (lmo(grad) - x)
    oracle = jax.jit(lmo.l1_ball(1.5))
    tx = mu2_optax.mu2(frank_wolfe(oracle), mu2_optax.linear_momentum(0))
    points, state = run(tx, jnp.zeros(5), jnp.zeros(50), GRAD)
    expected = np.zeros(5)
    for t in range(1, 51):
        vertex = np.asarray(oracle((expected - 0.3).astype(np.float32)))
        expected = expected + 2 / (t + 2) * (vertex - expected)
    np.testing.assert_allclose(points[-1], expected, atol=1e-5)
    assert np.count_nonzero(state.w) == 1


def test_mu2_frank_wolfe_is_the_limit_of_mu2_sgd():
    noise = 0.5 * jax.random.normal(jax.random.key(0), (200, 5))
    momentum = mu2_optax.linear_momentum(1)
    limit, _ = run(mu2_frank_wolfe(lmo.l2_ball(1.0), momentum), jnp.zeros(5), noise, GRAD)

    def away(rate):
        tx = mu2_optax.mu2_sgd(rate, momentum, projection=mu2_optax.onto_l2_ball(1.0))
        points, _ = run(tx, jnp.zeros(5), noise, GRAD)
        return jnp.linalg.norm(points[-1] - limit[-1])

    distances = jax.jit(jax.vmap(away))(jnp.array([1.0, 1e2, 1e4, 1e6])).tolist()
    assert distances[-1] < 1e-4
    assert distances == sorted(distances, reverse=True)


def test_mu2_frank_wolfe_stays_in_the_set_and_beats_the_classical():
    noise = jax.random.normal(jax.random.key(1), (16, 300, 5))
    tx = mu2_frank_wolfe(lmo.l2_ball(1.0))

    def one(batches):
        xs, state = run(tx, jnp.zeros(5), batches, GRAD)
        return jnp.linalg.norm(xs, axis=-1), jnp.linalg.norm(state.w), xs[-1]

    norms, w, x = map(np.asarray, jax.jit(jax.vmap(one))(noise))
    assert norms.max() <= 1 + 1e-5
    np.testing.assert_allclose(w, 1, rtol=1e-5)
    # the minimum is 0.3 in each coordinate, of norm 0.67, inside the ball. Classical Frank-Wolfe
    # on single noisy gradients (beta = 1) is the comparison; d and with it x are far better.
    plain = mu2_optax.mu2(
        frank_wolfe(lmo.l2_ball(1.0)), mu2_optax.DoubleMomentum(1.0, 1.0, LINEAR.gamma)
    )
    classical = jax.jit(jax.vmap(lambda batches: run(plain, jnp.zeros(5), batches, GRAD)[0][-1]))
    error = lambda x: np.mean(np.sum((x - 0.3) ** 2, -1))
    ours, theirs = error(x), error(np.asarray(classical(noise)))
    assert ours < theirs / 3


LINEAR = mu2_optax.linear_momentum(1)


@pytest.mark.parametrize("case", [case for case in CASES if "around" not in case])
def test_lmo_of_a_leaf_without_numbers_changes_nothing(case):
    oracle, _ = CASES[case]
    d = {"a": np.array([[3.0, -4.0], [1.0, 0.5], [0.0, 2.0]], np.float32), "b": CENTER["b"]}
    none = np.zeros((0, 3), np.float32)
    found, alone = jax.jit(lambda d, none: (oracle({**d, "none": none}), oracle(d)))(d, none)
    jax.tree.map(np.testing.assert_array_equal, found, {**alone, "none": none})
    assert oracle({}) == {}


@pytest.mark.parametrize(
    "oracle",
    [
        lmo.l2_ball(2.0),
        lmo.linf_ball(2.0),
        lmo.l1_ball(2.0),
        lmo.simplex(),
        lmo.spectral_ball(2.0),
        lmo.spectral_ball(2.0, iterations=30),
    ],
    ids=["l2", "linf", "l1", "simplex", "svd", "newton_schulz"],
)
@pytest.mark.parametrize(
    ("spec", "wrap"),
    [(PartitionSpec("all"), jax.jit), (PartitionSpec(None, "all"), lambda f: f)],
    ids=["jit", "eager"],
)
def test_lmo_on_an_explicit_mesh_is_that_of_one_device(oracle, spec, wrap):
    mesh = jax.make_mesh((8,), ("all",), axis_types=(AxisType.Explicit,))
    normal = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    d = {"a": normal, "b": np.ones((16, 8), np.float32)}
    sharded = jax.device_put(d, NamedSharding(mesh, spec))
    found = wrap(oracle)(sharded)
    for name, expected in jax.jit(oracle)(d).items():
        assert jax.typeof(found[name]) == jax.typeof(sharded[name])
        np.testing.assert_allclose(found[name], expected, atol=1e-5)


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e30, 3e38])
def test_l2_ball_of_a_constant_direction_is_exact(size):
    # XLA would square the constant and the inverse of its size apart from each other.
    point = jax.jit(lambda: lmo.l2_ball(1.0)(jnp.full(4, size)))()
    np.testing.assert_allclose(point, -jnp.full(4, 0.5), rtol=1e-6)
