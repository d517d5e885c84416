"""Graph networks on graphs that are made here: communities of nodes, and triangles of a graph."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.self_tuning.task import on_rows, split
from benchmarks.training import Functions, dense

NODES = 16


def load(name: str) -> Any:
    """Graphs as (adjacency, features of the nodes, what to tell)."""
    rng = np.random.default_rng(0)
    count = 5000
    upper = np.triu(np.ones((NODES, NODES), bool), 1)
    draw = lambda p: (np.triu(rng.random((count, NODES, NODES)) < p, 1)).astype(np.float32)
    if name == "communities":  # which of two communities a node is in, told by noisy features
        label = rng.integers(0, 2, (count, NODES))
        same = label[:, :, None] == label[:, None, :]
        edges = draw(np.where(same, 0.5, 0.15))
        sign = 2 * label - 1
        features = 0.4 * sign[..., None] + rng.standard_normal((count, NODES, 4))
        wanted = label.astype(np.float32)
    else:  # how many triangles there are
        edges = draw(rng.uniform(0.1, 0.6, (count, 1, 1)) * upper)
        features = np.ones((count, NODES, 4))
    adjacency = edges + edges.transpose(0, 2, 1)
    if name != "communities":
        triangles = np.einsum("bij,bjk,bki->b", adjacency, adjacency, adjacency) / 6
        wanted = np.log1p(triangles).astype(np.float32)
        wanted = (wanted - wanted.mean()) / wanted.std()
    return split((adjacency, features.astype(np.float32), wanted), 500, 1500)


def _init(key: Any, width: int) -> Any:
    keys = jax.random.split(key, 7)
    sizes = ((4, width), (width, width), (width, width))
    return {
        "own": [dense(k, *size) for k, size in zip(keys[:3], sizes, strict=True)],
        "others": [dense(k, *size) for k, size in zip(keys[3:6], sizes, strict=True)],
        "out": dense(keys[6], width, 1),
    }


def _nodes(params: Any, adjacency: Any, x: Any, share: Any) -> Any:
    """Three rounds in which every node hears from its neighbours."""
    for own, others in zip(params["own"], params["others"], strict=True):
        heard = share * (adjacency @ (x @ others["w"])) + others["b"]
        x = jax.nn.relu(x @ own["w"] + own["b"] + heard)
    return x


def network(data: Any, name: str, batch: int = 32, width: int = 32) -> Functions:
    """The cross-entropy of nodes' "communities", or the squared error of graphs' "triangles"."""

    def told(params: Any, adjacency: Any, features: Any) -> Any:
        if name == "communities":
            share = 1 / jnp.maximum(adjacency.sum(-1, keepdims=True), 1)
            nodes = _nodes(params, adjacency, features, share)
        else:
            nodes = _nodes(params, adjacency, features, 0.2).mean(1)
        return (nodes @ params["out"]["w"] + params["out"]["b"])[..., 0]

    def loss(params: Any, some: Any) -> Any:
        adjacency, features, wanted = some
        found = told(params, adjacency, features)
        if name == "communities":
            return optax.sigmoid_binary_cross_entropy(found, wanted).mean()
        return ((found - wanted) ** 2).mean()

    return on_rows(data, lambda key: _init(key, width), loss, batch)
