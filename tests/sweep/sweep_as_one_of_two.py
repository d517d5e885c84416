"""One of two processes that sweep together.

python sweep_as_one_of_two.py PROCESS PORT FOLDER [interrupt]
"""

import os
import pathlib
import signal
import sys

import jax
import numpy as np
from sweep.conftest import make_logistic

from mu2_optax.sweep import SweepInterrupted, save_results, sweep
from mu2_optax.sweep._cells import Cells

RATES = np.logspace(-3, 1, 8)
SEEDS = 6
CHUNKS = {"strategy": "vmap", "chunk_size": 1, "progress": False}  # on each device: 6 calls


def press_ctrl_c_after(cells):
    """Ctrl-C in this process alone, while a call's cells are being recorded."""
    add = Cells.add

    def adding(self, *args):
        before = self.done.sum()
        add(self, *args)
        if before < cells <= self.done.sum():
            os.kill(os.getpid(), signal.SIGINT)

    Cells.add = adding


def main(process, port, folder, what=""):
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=int(process))
    assert (jax.process_count(), jax.local_device_count(), jax.device_count()) == (2, 4, 8)
    own = pathlib.Path(folder, process)  # nothing says that the processes share a disk
    own.mkdir(exist_ok=True)
    if what == "interrupt" and process == "1":
        press_ctrl_c_after(10)
    options = CHUNKS | {"devices": jax.devices(), "resume": own / "run"}
    try:
        result = sweep(make_logistic(), RATES, SEEDS, **options)
    except SweepInterrupted as interrupt:
        result = interrupt.result
        (own / "interrupted").touch()
    save_results(own / "result.npz", result)


if __name__ == "__main__":
    main(*sys.argv[1:])
