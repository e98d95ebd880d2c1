"""Memory of the whole embedded service when idle: proportional set size (PSS) of all its processes.

    python -m bench.service.idle_memory [--page]

With --page also while a Chromium has the page of a model open, and its event stream. Goal: ≤ 450
MB. PSS divides pages that processes share, so the sum counts each page once.
"""

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from bench.service.browser import logged_in
from perennial import Perennial
from tools import service

SETTLE_S = 15.0


def main() -> None:
    """Start the service, let it settle, print a line per process and the sum."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="also with a page open")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service.running(Path(folder)) as running:
        _print(running, "in all")
        if given.page:
            with Perennial(running.key, base_url=running.url) as client, logged_in(running) as page:
                client.models.create("open", scenario="class", base="perennial/resnet20-cifar100")
                page.goto("/ui/models/open")
                _print(running, "in all with a page open")


def _print(running: service.Service, words: str) -> None:
    time.sleep(SETTLE_S)
    root = psutil.Process(running.process.pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        mb = process.memory_full_info().pss / 1e6
        total += mb
        print(f"{mb:7.1f} MB  {' '.join(process.cmdline()[1:6])}")
    print(f"{total:7.1f} MB  {words} (goal ≤ 450)")


if __name__ == "__main__":
    main()
