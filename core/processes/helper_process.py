"""Helper processes, which communicate over stdin and stdout, store nothing and need no secret."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Working directory of helpers, in which they find these packages."""
# A list of what is passed on, not of what is hidden: a new secret cannot be forgotten in it.
_KEPT = re.compile(
    r"PATH|LANG|LC_\w+|TZ|HOME|TMPDIR|LD_LIBRARY_PATH|PYTHON[A-Z]+|XDG_CACHE_HOME|PERENNIAL_KILL_POINTS"
    r"|(MALLOC|OMP|KMP|GOMP|MKL|OPENBLAS|CUDA|CUBLAS|NVIDIA|TORCH\w*|PYTORCH|HIP|ROCR|HSA)_\w+"
)


def build_helper_environment(**more: str) -> dict[str, str]:
    """Return the environment variables for a helper process, extended by `more`.

    It has the paths of programs and libraries and the settings of threads and devices. Everything
    else is left out, above all the addresses and passwords of database, store and broker.
    """
    return {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)} | more


def run_module_in_helper_process(
    module: str, argument: str, timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a Python module in a process with one argument; return its status and output.

    Raises:
        subprocess.TimeoutExpired: the module took longer than `timeout_s` and was killed.
    """
    return subprocess.run(
        [sys.executable, "-m", module, argument],
        cwd=ROOT,
        env=build_helper_environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        # Callers distinguish failures by the status.
        check=False,
    )


def kill_helper_process(process: "subprocess.Popen[bytes]") -> None:
    """Kill a helper process, wait until it has ended, and close its pipes."""
    process.kill()
    # A child that nobody waits for stays a zombie as long as the service lives.
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            continue  # the pipe still had bytes that the helper never read
