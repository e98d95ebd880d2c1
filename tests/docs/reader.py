"""A reader of the documents: a folder with batches, photos and the data of a service, and commands
that run there.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.client.pack import sources
from tests.client.small_batches import reduce_batch
from tests.own_commands import make_environment
from tests.rest import Rest
from tools import digits, service

SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_CHORES_S": "1",
    "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
}
TRAIN = 12
"""Images of each class that a batch brings to learn from: many commands wait until a batch is
learned.
"""
COLLECTED = {
    "photos": sources.write_class_folders,
    "lists": sources.write_csv_list,
    "shards": sources.write_shards,
    "my-dataset": sources.write_parquet,
    "my-images": sources.write_imagefolder,
    "coco": sources.write_coco,
    "yolo": sources.write_yolo,
}
"""Folder of a reader → the function that writes it in the layout of another tool."""


@dataclass
class Reader:
    """A reader with a folder and a service.

    Attributes:
        environment: of the commands, in which `perennial` is this checkout's.
    """

    folder: Path
    running: service.RunningService
    environment: dict[str, str]

    def run(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the folder, with both outputs in one stream."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def collect(self, text: str) -> None:
        """Write the folders of `COLLECTED` that a text names, once: some load large libraries."""
        for name, make in COLLECTED.items():
            if name in text and not (self.folder / name).exists():
                make(self.folder / name)

    def make_blob_key(self, owner: str) -> str:
        """Make a key of a new owner: names of models are unique for each owner."""
        key = {"name": owner, "owner": owner, "scope": "write"}
        made = Rest(self.running.url, self.running.key).call("POST", "/v1/keys", json=key).json()
        return str(made["secret"])


@contextmanager
def start_reader(folder: Path) -> Iterator[Reader]:
    """Prepare a folder and start a service that keeps its data there."""
    for week, (_, archive) in enumerate(digits.build_digit_archives(), start=31):
        (folder / f"week-{week}.zip").write_bytes(reduce_batch(archive, train=TRAIN))
    with zipfile.ZipFile(folder / "week-31.zip") as first:
        for name in ("bird.png", "owl.jpg"):  # the service looks at bytes, not at names
            (folder / name).write_bytes(first.read(first.namelist()[0]))
    (folder / ".venv").symlink_to(sys.prefix)
    with service.run_temporary_service(folder / "perennial-data", SETTINGS) as running:
        port = running.url.rpartition(":")[2]
        address = {"PERENNIAL_PORT": port, "PERENNIAL_URL": running.url}
        yield Reader(folder, running, {**os.environ, **make_environment(folder / "own"), **address})
