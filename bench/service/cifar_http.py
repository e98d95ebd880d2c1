"""A real archive through HTTP: ten CIFAR-100 classes, learned for one epoch, downloaded in two halves.

    python -m bench.service.cifar_http --data DIR

DIR holds `cifar100/classes_00-09.zip` (`train/<class>/` 500 and `test/<class>/` 100 PNG each).
"""

import argparse
import hashlib
import tempfile
from datetime import datetime
from pathlib import Path

from tools import service
from tools.client import Client


def main() -> None:
    """Print what was ingested, how fast, what was learned, and the digest of the resumed download."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    archive = parser.parse_args().data / "cifar100" / "classes_00-09.zip"
    with tempfile.TemporaryDirectory() as folder, service.running(Path(folder)) as running:
        client = Client(running.url, running.key)
        client.create_model(
            "cifar",
            architecture={"name": "slim-resnet18"},
            recipe={"epochs": 1, "method": "finetune"},
        )
        job = client.submit("cifar", archive)
        end = client.wait(job, timeout_s=900)
        task = client.get("/v1/models/cifar/tasks/1")
        print(f"job {end['state']}; {task['n_train']} + {task['n_held_out']} images, report {task['report']}")
        events = client.items(f"/v1/jobs/{job}/events")
        at = {e["data"].get("state"): datetime.fromisoformat(e["at"]) for e in events if e["type"] == "state"}
        seconds = (at["running"] - at["validating"]).total_seconds()
        images = task["n_train"] + task["n_held_out"]
        print(
            f"ingest: {images} images in {seconds:.2f} s = {images / seconds:,.0f} images/s (fetch to commit)"
        )
        print(f"accuracy after one epoch: {client.get('/v1/models/cifar/metrics')['accuracy_matrix']}")
        _resumed_download(client, "/v1/models/cifar/versions/1/download")


def _resumed_download(client: Client, path: str) -> None:
    head = client.call("HEAD", path)
    size, etag = int(head.headers["Content-Length"]), head.headers["ETag"]
    half = size // 2
    first = client.call("GET", path, headers={"Range": f"bytes=0-{half - 1}"})
    second = client.call("GET", path, headers={"Range": f"bytes={half}-", "If-Range": etag})
    assert (first.status_code, second.status_code) == (206, 206)
    digest = hashlib.sha256(first.content + second.content).hexdigest()
    print(
        f"download: {size:,} bytes in two ranges ({first.headers['Content-Range']}; "
        f"{second.headers['Content-Range']})"
    )
    print(f"sha256 {digest}, ETag {etag}: {'equal' if digest == etag.strip(chr(34)) else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
