"""A submission of ``mu2_auto()`` to AlgoPerf, and a stand-in for its harness."""
