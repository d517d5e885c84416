"""Scripts of the tests as processes of their own."""

import os
import pathlib
import socket
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def run(script, *args, devices=1):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [TESTS.parent, TESTS])),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outputs(*processes):
    """What each process prints; none outlives this call."""
    try:
        results = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in results]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
