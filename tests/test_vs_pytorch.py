"""Both sides of the comparison with PyTorch run the same algorithm."""

import jax
import numpy as np
import pytest
from commands import call

torch = pytest.importorskip("torch", reason="needs the extra `bench`")
from benchmarks import files, image_tasks, vs_pytorch  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", vs_pytorch.MODELS)
@pytest.mark.parametrize("scanned", [False, True])
def test_vs_pytorch_makes_the_same_steps_on_both_sides(name, scanned):
    model, data = vs_pytorch.MODELS[name], image_tasks.made_up(256)
    rows = np.random.default_rng(2).integers(0, 256, (6, vs_pytorch.BATCH))
    task = model.task(data)
    params = task.init(jax.random.key(0))
    train_there, modules = vs_pytorch.there(model, data, params)
    train_there(rows)
    modules.train()
    images, labels = torch.tensor(data.train_x[:64]), torch.tensor(data.train_y[:64]).long()
    loss_there = torch.nn.functional.cross_entropy(modules(images), labels)

    train_here = vs_pytorch.here(model, data, scanned=scanned)
    state = model.optimizer(vs_pytorch.RATE).init(params)
    first = jax.tree.map(np.array, params)
    params, _ = train_here(params, state, rows)
    np.testing.assert_allclose(
        task.loss(params, task.batch(np.arange(64))), loss_there.item(), 1e-5
    )
    ends, starts = vs_pytorch.as_tensors(params), vs_pytorch.as_tensors(first)
    for own, end, start in zip(modules.parameters(), ends, starts, strict=True):
        moved = (end - start).abs().max()
        # float32: a bias before BatchNorm has no gradient but rounding, and moves by that alone.
        assert (own.detach() - end).abs().max() <= 1e-4 * moved + 1e-6
        assert moved > 0


@pytest.mark.slow
def test_vs_pytorch_writes_a_row_for_each_way(tmp_path, monkeypatch):
    monkeypatch.setattr(vs_pytorch.torch, "compile", lambda modules: modules)  # takes half a minute
    options = ["--rounds", 1, "--sweep-rounds", 1, "--steps", 2, "--out", tmp_path]
    call(vs_pytorch, monkeypatch, *options)
    (file,) = tmp_path.iterdir()
    rows = files.read_rows(file)
    assert len(rows) == 4 * len(vs_pytorch.MODELS) + 3
    assert all(float(row["per_second"]) > 0 for row in rows)
