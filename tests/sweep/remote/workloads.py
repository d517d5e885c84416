"""What the tests of executors and of Dask run on workers."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax.sweep import sweep

RATES = [0.01, 0.1, 1.0, 10.0]


def quiet(train, *grid, **options):
    return sweep(train, *grid, progress=False, **options)


def assert_same_bits(one, other):
    assert one.finished.all()
    assert other.finished.all()
    assert one.metrics.keys() == other.metrics.keys()
    for name, values in one.metrics.items():
        assert values.dtype == other.metrics[name].dtype
        assert values.tobytes() == other.metrics[name].tobytes()


class Noted:
    """Data that notes in a file when it arrives somewhere."""

    def __init__(self, log, array):
        self.log, self.array = log, array

    def __setstate__(self, state):
        self.__dict__ = state
        with self.log.open("a") as log:
            log.write(f"data {os.getpid()}\n")


def noting(data, seconds):
    """A training function on noted data that also notes when it is traced."""

    def train(learning_rate, key):
        with data.log.open("a") as log:
            log.write(f"trace {os.getpid()}\n")
        time.sleep(seconds)
        return {"loss": learning_rate * jnp.asarray(data.array, jnp.float32).sum()}

    return train


class Strange(Exception):  # noqa: N818
    """Cannot be made again from its text, which breaks a pool that sends it."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def failing(learning_rate, key):
    def host(rate):
        if rate == 1:
            raise Strange("no", "luck")
        return np.float32(rate)

    out = jax.ShapeDtypeStruct((), jnp.float32)
    return {"loss": jax.pure_callback(host, out, learning_rate, vmap_method="sequential")}


def failing_in_python(learning_rate, key):
    if learning_rate == 1:
        raise Strange("no", "luck")
    return {"loss": learning_rate}
