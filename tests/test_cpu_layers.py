"""The layers of the examples against Flax's and JAX's own."""

import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from examples import cpu_layers


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((2, 1), (0, 3))])
@pytest.mark.parametrize("side", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_cpu_convolution_is_that_of_flax(side, padding):
    new = lambda **options: nnx.Conv(3, 7, (side, 5), padding=padding, rngs=nnx.Rngs(0), **options)
    images = jax.random.normal(jax.random.key(1), (2, 9, 8, 3))
    loss = lambda conv, images: jnp.sum(jnp.sin(conv(images)))
    evaluate = nnx.jit(nnx.value_and_grad(loss))
    want = evaluate(new(), images)
    got = evaluate(new(conv_general_dilated=cpu_layers.conv_general_dilated), images)
    # float32: sums of up to 60 products, in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), want, got)


@pytest.mark.parametrize("shape", [(2, 6, 8, 3), (2, 7, 5, 3)])
def test_cpu_max_pool_and_its_gradient_are_those_of_flax(shape):
    x = jax.random.normal(jax.random.key(0), shape)
    want, want_vjp = jax.vjp(lambda x: nnx.max_pool(x, (2, 2), strides=(2, 2)), x)
    got, got_vjp = jax.vjp(cpu_layers.max_pool, x)
    np.testing.assert_array_equal(got, want)
    cotangent = jax.random.normal(jax.random.key(1), want.shape)
    np.testing.assert_array_equal(got_vjp(cotangent)[0], want_vjp(cotangent)[0])


@pytest.mark.parametrize("equal", list(itertools.product([False, True], repeat=4)))
def test_cpu_max_pool_gives_the_gradient_to_the_first_of_the_largest(equal):
    square = jnp.where(jnp.array(equal), 1.0, jnp.array([0.1, 0.4, 0.2, 0.3]))
    gradient = jax.grad(lambda x: cpu_layers.max_pool(x).sum())(square.reshape(1, 2, 2, 1))
    np.testing.assert_array_equal(gradient.ravel(), np.arange(4) == np.argmax(square))


@pytest.mark.slow
def test_keep_freed_memory_clears_no_page_again():
    # In a process of its own, because the setting stays. 80 MB are 19 531 pages of 4 kB.
    program = """
import resource, threading
from examples.cpu_layers import keep_freed_memory
def pages(in_thread):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    if in_thread:  # where JAX runs large programs
        thread = threading.Thread(target=lambda: bytes([1]) * 80_000_000)
        thread.start()
        thread.join()
    else:
        bytes([1]) * 80_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
fresh = min(pages(False) for _ in range(3))
if keep_freed_memory():
    pages(False)
    assert pages(False) < fresh / 4, fresh
    assert pages(True) < fresh / 4, fresh
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
