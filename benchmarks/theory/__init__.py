"""What the theorems say, measured: ``python -m benchmarks.theory.rates`` and its neighbours."""
