"""Memory of the whole embedded service when idle: proportional set size (PSS) of all its processes.

    python -m bench.service.idle_memory

Goal: ≤ 450 MB. PSS divides pages that processes share, so the sum counts each page once.
"""

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from tools import service

SETTLE_S = 15.0


def main() -> None:
    """Start the service, let it settle, print a line per process and the sum."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, service.running(Path(folder)) as running:
        time.sleep(SETTLE_S)
        root = psutil.Process(running.process.pid)
        total = 0.0
        for process in (root, *root.children(recursive=True)):
            mb = process.memory_full_info().pss / 1e6
            total += mb
            print(f"{mb:7.1f} MB  {' '.join(process.cmdline()[1:6])}")
        print(f"{total:7.1f} MB  in all (goal ≤ 450)")


if __name__ == "__main__":
    main()
