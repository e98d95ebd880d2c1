"""A real archive through HTTP: ten CIFAR-100 classes, learned for one epoch, downloaded in two
halves.

    python -m bench.service.cifar_http --data DIR

DIR holds `cifar100/classes_00-09.zip` (`train/<class>/` 500 and `test/<class>/` 100 PNG each).
"""

import argparse
import hashlib
import tempfile
from datetime import datetime
from pathlib import Path

import httpx2

from perennial import Perennial, types
from tools import service


def main() -> None:
    """Measure ingest and training on CIFAR-100 over HTTP, and check a resumed download."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    archive = parser.parse_args().data / "cifar100" / "classes_00-09.zip"
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        client.models.create(
            "cifar",
            architecture={"name": "slim-resnet18"},
            recipe={"epochs": 1, "method": "finetune"},
        )
        job = client.submit("cifar", archive)
        end = job.wait(900)
        task = client.tasks.retrieve("cifar", 1)
        print(f"job {end.state}; {task.n_train} + {task.n_held_out} images, report {task.report}")
        at = {
            event.data.state: datetime.fromisoformat(event.at)
            for event in job.events()
            if isinstance(event.data, types.StateData)
        }
        seconds = (at["running"] - at["validating"]).total_seconds()
        images = (task.n_train or 0) + (task.n_held_out or 0)
        print(
            f"ingest: {images} images in {seconds:.2f} s = {images / seconds:,.0f} images/s (fetch "
            f"to commit)"
        )
        accuracy = client.metrics.retrieve("cifar").accuracy_matrix
        print(f"accuracy after one epoch: {accuracy}")
        _download_in_two_ranges(running, "/v1/models/cifar/versions/1/download")


def _download_in_two_ranges(running: service.RunningService, path: str) -> None:
    key = {"Authorization": f"Bearer {running.key}"}
    with httpx2.Client(base_url=running.url, headers=key, timeout=60) as http:
        _download_in_halves_and_print_digest(http, path)


def _download_in_halves_and_print_digest(http: httpx2.Client, path: str) -> None:
    head = http.head(path)
    size, etag = int(head.headers["Content-Length"]), head.headers["ETag"]
    half = size // 2
    first = http.get(path, headers={"Range": f"bytes=0-{half - 1}"})
    second = http.get(path, headers={"Range": f"bytes={half}-", "If-Range": etag})
    assert (first.status_code, second.status_code) == (206, 206)
    digest = hashlib.sha256(first.content + second.content).hexdigest()
    print(
        f"download: {size:,} bytes in two ranges ({first.headers['Content-Range']}; "
        f"{second.headers['Content-Range']})"
    )
    print(
        f"sha256 {digest}, ETag {etag}: {'equal' if digest == etag.strip(chr(34)) else 'DIFFERENT'}"
    )


if __name__ == "__main__":
    main()
