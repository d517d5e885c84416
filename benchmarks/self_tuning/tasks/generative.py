"""What is learnt without labels: autoencoders, a contrastive loss, denoising."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.self_tuning.task import apply_layers, layers, with_seeds
from benchmarks.self_tuning.tasks import images
from benchmarks.training import Functions, cross_entropy, shuffled

NOISE_LEVELS = (0.1, 2.0)


def load(name: str, data_dir: str | None, held_out: int = 960, tested: int = 1920) -> Any:
    """Images as rows of numbers from 0 to 1."""
    data = images.load(name, data_dir, held_out, tested)
    low, high = data["train"][0].min(), data["train"][0].max()
    return {part: (x.reshape(len(x), -1) - low) / (high - low) for part, (x, _) in data.items()}


def _functions(data: Any, init: Any, loss: Any, batch: int) -> Functions:
    """A loss of (params, (images, key)), measured on held-out images with a key of their own."""
    x = data["train"]
    return Functions(
        init=init,
        draw=with_seeds(lambda key, steps: shuffled(key, len(x), batch, steps)),
        batch=lambda row: (x[row[0]], row[1]),
        loss=loss,
        measure=lambda params, rows, part: loss(params, (data[part], jax.random.key(0))),
    )


def variational_autoencoder(
    data: Any, hidden: int = 128, latent: int = 16, batch: int = 64
) -> Functions:
    """The negative evidence bound of dense encoder and decoder, with Bernoulli pixels."""
    pixels = data["train"].shape[1]

    def init(key: Any) -> Any:
        keys = jax.random.split(key)
        return {
            "encoder": layers(keys[0], (pixels, hidden, 2 * latent)),
            "decoder": layers(keys[1], (latent, hidden, pixels)),
        }

    def loss(params: Any, some: Any) -> Any:
        x, key = some
        mean, log_deviation = jnp.split(apply_layers(params["encoder"], x, jax.nn.relu), 2, -1)
        z = mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)
        logits = apply_layers(params["decoder"], z, jax.nn.relu)
        distortion = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        rate = 0.5 * mean**2 + 0.5 * jnp.exp(2 * log_deviation) - log_deviation - 0.5
        return (distortion + rate.sum(-1)).mean()

    return _functions(data, init, loss, batch)


def autoencoder(data: Any, batch: int = 64) -> Functions:
    """A deep dense autoencoder with tanh, and the squared error of an image."""
    pixels = data["train"].shape[1]
    sizes = (pixels, 128, 64, 12, 64, 128, pixels)

    def loss(params: Any, some: Any) -> Any:
        return ((apply_layers(params, some[0], jnp.tanh) - some[0]) ** 2).sum(-1).mean()

    return _functions(data, lambda key: layers(key, sizes), loss, batch)


def contrastive(data: Any, batch: int = 64, temperature: float = 0.2) -> Functions:
    """Finds the other view of an image among those of its batch (InfoNCE).

    A view has a random third of the pixels left, and noise.
    """
    pixels = data["train"].shape[1]
    sizes = (pixels, 128, 128, 32)

    def embedded(params: Any, x: Any, key: Any) -> Any:
        mask_key, noise_key = jax.random.split(key)
        x = 3 * x * jax.random.bernoulli(mask_key, 1 / 3, x.shape)
        z = apply_layers(params, x + 0.3 * jax.random.normal(noise_key, x.shape), jax.nn.relu)
        return z * jax.lax.rsqrt((z**2).sum(-1, keepdims=True) + 1e-6)

    def loss(params: Any, some: Any) -> Any:
        x, key = some
        one, other = (embedded(params, x, k) for k in jax.random.split(key))
        one, other = (z.reshape(-1, batch, 32) for z in (one, other))  # comparisons in each batch
        return cross_entropy(one @ other.swapaxes(-1, -2) / temperature, jnp.arange(batch)[None])

    return _functions(data, lambda key: layers(key, sizes, images.GAIN), loss, batch)


def denoising(data: Any, batch: int = 64) -> Functions:
    """Tells the noise of an image with noise of a random level, as diffusion models do."""
    pixels = data["train"].shape[1]
    low, high = (math.log(level) for level in NOISE_LEVELS)

    def loss(params: Any, some: Any) -> Any:
        x, key = some
        x = 4 * x - 2
        level_key, noise_key = jax.random.split(key)
        log_level = jax.random.uniform(level_key, (len(x), 1), minval=low, maxval=high)
        noise = jax.random.normal(noise_key, x.shape)
        waves = jnp.sin(log_level * 2.0 ** jnp.arange(4) + jnp.array([0.0, 1.6, 0.0, 1.6]))
        seen = (x + jnp.exp(log_level) * noise) * jax.lax.rsqrt(1 + jnp.exp(2 * log_level))
        told = apply_layers(params, jnp.concatenate([seen, waves], -1), jax.nn.silu)
        return ((told - noise) ** 2).mean()

    sizes = (pixels + 4, 128, 128, 128, pixels)
    return _functions(data, lambda key: layers(key, sizes, images.GAIN), loss, batch)
