"""Memory of the whole embedded service when idle: proportional set size (PSS) of all its processes.

    python -m bench.service.idle_memory [--page] [--predictions]

With --page also while a Chromium has the page of a model open, and its event stream. With
--predictions also after a batch was learned, while predictions are answered, and ten minutes after
the last one. Goal: ≤ 450 MB, but for the time of predictions. PSS divides pages that processes
share, so the sum counts each page once.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from bench.service.browser import open_logged_in_page
from bench.service.submit import build_zip_of_noise_images, draw_noise_png
from perennial import Perennial
from tools import service

SETTLE_S = 15.0
PREDICT_S, REST_S = 30.0, 600.0


def main() -> None:
    """Print the memory of the idle service, per process and in total."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="also with a page open")
    parser.add_argument("--predictions", action="store_true", help="also around predictions")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        _wait_and_print_process_memory(running, "in all")
        if options.page:
            with (
                Perennial(running.key, base_url=running.url) as client,
                open_logged_in_page(running) as page,
            ):
                client.models.create("open", scenario="class", base="perennial/resnet20-cifar100")
                page.goto("/ui/models/open")
                _wait_and_print_process_memory(running, "in all with a page open")
        if options.predictions:
            _print_prediction_memory(running)


def _print_prediction_memory(running: service.RunningService) -> None:
    """Print the memory before, during and after predictions with a version."""
    with Perennial(running.key, base_url=running.url) as client:
        client.models.create("asked", scenario="class", base="perennial/resnet20-cifar100")
        client.submit("asked", build_zip_of_noise_images(0)).wait()
        _wait_and_print_process_memory(running, "in all after a batch was learned")
        image = draw_noise_png(np.random.default_rng(0))
        end = time.monotonic() + PREDICT_S
        while time.monotonic() < end:
            client.predict("asked", [image], version=1)
        _wait_and_print_process_memory(running, "in all seconds after the last prediction")
        time.sleep(REST_S - SETTLE_S)
        _wait_and_print_process_memory(running, "in all ten minutes after the last prediction")


def _wait_and_print_process_memory(running: service.RunningService, words: str) -> None:
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
