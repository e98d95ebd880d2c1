"""Helper processes: ones that answer over their stdin and stdout, keep nothing of their own and need no secret."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Where helpers start, so that they find these packages."""
_KEPT = re.compile(
    r"PATH|LANG|LC_\w+|TZ|HOME|TMPDIR|LD_LIBRARY_PATH|PYTHON[A-Z]+|XDG_CACHE_HOME|PERENNIAL_KILL_POINTS"
    r"|(MALLOC|OMP|KMP|GOMP|MKL|OPENBLAS|CUDA|CUBLAS|NVIDIA|TORCH\w*|PYTORCH|HIP|ROCR|HSA)_\w+"
)


def environment(**more: str) -> dict[str, str]:
    """What a helper inherits: where programs and libraries lie, how they count threads and find a device, and `more`.

    Everything else stays behind, least of all keys: addresses and passwords of the database, the store and the broker.
    """
    return {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)} | more


def run_module(module: str, argument: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run a module that takes one argument, to its end, and return its status and output.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    return subprocess.run(
        [sys.executable, "-m", module, argument],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a helper, whatever it does, wait until it is gone, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            continue  # bytes that it never took
