"""Files that were cut off, or in which a bit has flipped, are refused or said to be damaged."""

import ast
import pathlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from jax.sharding import NamedSharding, PartitionSpec

import mu2_optax
from mu2_optax import checkpoint

ROOT = pathlib.Path(mu2_optax.__file__).parents[1]

LEAVES = [
    np.float32([[1.5, -2.0], [0.0, 3.0]]),
    np.float16([1.0, 2.0]),
    jnp.ones(5, jnp.bfloat16),
    np.int32(7),
    np.arange(6, dtype=np.int8),
    np.array([True, False]),
    np.complex64([1 + 2j, 3 - 1j]),
]


def words(leaf):
    """The bits of a leaf, as Python's integers: an oracle that knows nothing of JAX."""
    leaf = np.asarray(leaf)
    leaf = leaf.view(leaf.real.dtype) if leaf.dtype.kind == "c" else leaf
    width = min(leaf.dtype.itemsize, 4)
    return np.frombuffer(leaf.tobytes(), f"<u{width}").tolist()


def mixed(word):
    """The last steps of MurmurHash3, which change every word to another one."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        word = (word ^ (word >> shift)) * factor % 2**32
    return word


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_checksum_is_the_sum_of_the_mixed_words(leaf):
    places = enumerate(words(leaf))
    expected = sum(mixed((word + i * 0x9E3779B9) % 2**32) for i, word in places)
    expected += zlib.crc32(str(np.shape(leaf)).encode())
    assert checkpoint.seal(leaf).sums.tolist() == [expected % 2**32]


def test_the_same_numbers_in_another_shape_are_not_what_was_saved():
    for leaf in (jnp.arange(4.0), np.arange(4.0)):
        sealed = checkpoint.seal(leaf)
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint.unseal(sealed._replace(tree=leaf.reshape(2, 2)))


@pytest.mark.parametrize("empty", [{}, [], (), {"a": None}])
def test_a_tree_without_leaves_can_be_sealed(empty):
    sealed = checkpoint.seal(empty)
    assert sealed.sums.shape == (0,)
    assert checkpoint.unseal(sealed) == empty
    with pytest.raises(ValueError, match="has 0 checksums for 1 leaves"):
        checkpoint.unseal(sealed._replace(tree=jnp.ones(2)))


@pytest.mark.parametrize("bit", [31, 30, 16, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16, np.float64])
def test_the_same_bit_flipped_in_two_numbers_is_found(dtype, bit):
    leaf = np.arange(1, 6).astype(dtype)
    word = np.dtype(f"u{leaf.itemsize}").type(1) << (bit % (8 * leaf.itemsize))
    sealed = checkpoint.seal(leaf)
    for i, j in ((0, 1), (1, 4), (2, 3)):
        damaged = leaf.copy()
        damaged.view(word.dtype)[[i, j]] ^= word
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint.unseal(sealed._replace(tree=damaged))
    swapped = leaf[[1, 0, 2, 3, 4]]
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.unseal(sealed._replace(tree=swapped))


@pytest.mark.parametrize("leaf", [np.float64(1 / 3), np.complex128([1 / 3 + 2j / 7]),
                                  np.array([2**60 + 1]), np.uint64(2**63)])  # fmt: skip
def test_numbers_of_64_bits_are_checked_to_the_last_one_with_and_without_x64(leaf):
    sealed = checkpoint.seal(leaf)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(checkpoint.seal(jnp.asarray(leaf)).sums, sealed.sums)
        checkpoint.unseal(sealed)
    damaged = np.asarray(leaf).copy()
    damaged.reshape(-1).view(np.uint8)[0] ^= 1
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.unseal(sealed._replace(tree=damaged))


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint4, jnp.int2, jnp.float8_e4m3fn])
def test_narrow_numbers_can_be_sealed(dtype):
    leaf = jnp.asarray([1, 0, 1, -2], jnp.float32).astype(dtype)
    sealed = checkpoint.seal(leaf)
    checkpoint.unseal(sealed)
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.unseal(sealed._replace(tree=leaf.at[2].set(0)))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: str(np.asarray(leaf).dtype))
def test_every_single_flipped_bit_is_found(leaf):
    sealed = checkpoint.seal({"a": jnp.zeros(3), "leaf": leaf})
    assert checkpoint.unseal(sealed) is sealed.tree
    whole = np.asarray(leaf)
    bits = np.unpackbits(np.frombuffer(whole.tobytes(), np.uint8))
    for place in range(0, len(bits), 8 if whole.dtype == bool else 3):
        place += 7 if whole.dtype == bool else 0  # the other bits of a truth value say nothing
        flipped = bits.copy()
        flipped[place] ^= 1
        damaged = np.frombuffer(np.packbits(flipped).tobytes(), whole.dtype).reshape(whole.shape)
        with pytest.raises(ValueError, match=r"^run/3 is damaged: .* is at \['leaf'\]"):
            checkpoint.unseal(sealed._replace(tree={"a": jnp.zeros(3), "leaf": damaged}), "run/3")


def test_sharded_leaves_have_the_same_sums():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    leaf = jnp.arange(64.0).reshape(4, 16) ** 2
    sharded = jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(None, "data")))
    assert checkpoint.seal(sharded).sums == checkpoint.seal(leaf).sums


def test_sums_of_another_tree_are_refused():
    sealed = checkpoint.seal([jnp.ones(2)])
    with pytest.raises(ValueError, match="has 1 checksums for 2 leaves"):
        checkpoint.unseal(sealed._replace(tree=[jnp.ones(2), jnp.ones(2)]))


def state():
    params = {"w": jnp.arange(2048.0).reshape(64, 32)}
    return checkpoint.seal(mu2_optax.mu2_sgd(0.1).init(params))


def test_flax_bytes_that_are_cut_off_are_refused():
    encoded = serialization.to_bytes(state())
    for size in range(0, len(encoded), len(encoded) // 20):
        with pytest.raises(ValueError, match=r"is cut off, damaged|of `target`"):
            checkpoint.from_bytes(state(), encoded[:size])


def flipped(path, place, bit=6):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_a_bit_that_orbax_does_not_notice_is_found(tmp_path):
    folder = tmp_path / "checkpoint"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, state())
        checkpointer.wait_until_finished()
        largest = max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
        restore = lambda: checkpointer.restore(folder, jax.eval_shape(state))
        checkpoint.unseal(restore(), folder)
        flipped(largest, largest.stat().st_size // 2)
        restored = restore()  # without a word
    with pytest.raises(ValueError, match=r"checkpoint is damaged: .*w"):
        checkpoint.unseal(restored, folder)


# What a sweep sends to the workers of an executor and gets from them, as SECURITY.md says.
TO_AND_FROM_WORKERS = {
    ROOT / "mu2_optax" / "sweep" / name
    for name in ("_remote/executor.py", "_remote/worker.py", "_command/names.py")
}
UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize("folder", ["mu2_optax", "examples", "benchmarks"])
def test_nothing_that_was_stored_is_unpickled(folder):
    assert all(path.is_file() for path in TO_AND_FROM_WORKERS)
    files = sorted({*(ROOT / folder).rglob("*.py")} - TO_AND_FROM_WORKERS)
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            imports = isinstance(node, ast.Import | ast.ImportFrom)
            names = [alias.name for alias in node.names] if imports else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & UNSAFE, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert node.value.value is False, path
