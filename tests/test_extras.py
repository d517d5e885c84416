"""The core needs no Flax, and the adapters say what they need."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_extras_flax_is_not_imported_by_the_package():
    check = "import sys, mu2_optax; assert 'flax' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=300)


@pytest.mark.parametrize("adapter", ["linen", "nnx"])
def test_extras_missing_flax_is_named(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    monkeypatch.delitem(sys.modules, f"mu2_optax.{adapter}", raising=False)
    with pytest.raises(ImportError, match=rf"`mu2_optax.{adapter}` needs Flax: `pip install flax`"):
        importlib.import_module(f"mu2_optax.{adapter}")
