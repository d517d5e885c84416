"""A second sweep of the same program does not compile it again; another program is not mixed up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import make_logistic

from mu2_optax.sweep import sweep
from mu2_optax.sweep._run import programs

RATES = [0.1, 0.5, 1.0]


@pytest.mark.parametrize(
    "options",
    [{}, {"strategy": "map"}, {"strategy": "loop"}, {"strategy": "vmap", "devices": 2}],
    ids=str,
)
def test_a_second_sweep_of_a_function_does_not_compile_again(compiles, options):
    if "devices" in options:
        options = options | {"devices": jax.devices()[: options["devices"]]}
    train = make_logistic()
    compiles.clear()
    first = sweep(train, RATES, 3, progress=False, **options)
    assert len(compiles) == 1
    again = sweep(train, RATES, 3, progress=False, **options)
    other_values = sweep(train, [0.2, 0.3, 0.4], [7, 8, 9], progress=False, **options)
    assert len(compiles) == 1
    np.testing.assert_array_equal(first.metrics["loss"], again.metrics["loss"])
    assert (other_values.metrics["loss"] != first.metrics["loss"]).all()


def test_what_the_function_closes_over_may_change(compiles):
    scale = {"by": jnp.ones(3), "factor": 1.0}
    train = lambda learning_rate, key: {"x": learning_rate * scale["factor"] * scale["by"].sum()}
    one = lambda: sweep(train, [1.0], 1, progress=False).metrics["x"].item()
    assert one() == 3
    scale["by"] = 2 * jnp.ones(3)  # another array of that shape: an argument
    done = len(compiles)
    assert one() == 6
    assert len(compiles) == done
    scale["factor"] = 10.0  # another number: another program
    assert one() == 60
    scale["by"] = jnp.ones(4)
    assert one() == 40


def test_metrics_of_other_names_are_another_program():
    names = iter("ab")
    train = lambda learning_rate, key: {next(names): 2 * learning_rate}
    assert list(sweep(train, [1.0], 1, progress=False).metrics) == ["a"]
    assert list(sweep(train, [1.0], 1, progress=False).metrics) == ["b"]


def test_host_callbacks_are_not_mixed_up():
    def calling(host):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        return lambda learning_rate, key: {"x": jax.pure_callback(host, out, learning_rate)}

    for factor in (2, 3):
        host = lambda rate, factor=factor: np.float32(factor * rate)
        result = sweep(calling(host), [1.0], 1, strategy="loop", progress=False)
        assert result.metrics["x"].item() == factor


def test_only_the_last_programs_are_kept(compiles, monkeypatch):
    monkeypatch.setattr(programs, "_LIMIT", 2)
    one = lambda n: sweep(lambda learning_rate, key: {"x": learning_rate + n}, [1.0], 1,
                          progress=False)  # fmt: skip
    for n in (1, 2, 1, 3):  # 2 is then the oldest
        assert one(n).metrics["x"].item() == n + 1
    done = len(compiles)
    one(1)
    assert len(compiles) == done
    one(2)
    assert len(compiles) == done + 1
