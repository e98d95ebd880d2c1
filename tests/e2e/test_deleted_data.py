"""A task's data after its deletion: the store and all folders are searched for its pixels.

All files are searched: the database with its log, the store, the spool, caches and scratch folders.
In the large size, the disk of the S3 server and a dump of PostgreSQL are searched too. The search
looks for rows of each image as they lie in memory: pixel by pixel, and channel by channel. It also
looks for bytes from the middle of its PNG, and for the hash by which near duplicates are found. The
service compresses nothing; members of a zip are read.
"""

import hashlib
import io
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import large_size
import numpy as np
import pytest
from operator_command import run_housekeeping
from PIL import Image
from sqlalchemy.engine import make_url

from core.statistics.near_duplicates import hash_images_perceptually
from tests.e2e import small
from tests.live_files import list_live_files
from tests.rest import Rest
from tools import service

IMAGE = {"size": 8, "channels": 3}
METHODS: dict[str, dict[str, Any]] = {
    "replay": {"name": "der++", "buffer": 60},
    "exemplars": {"name": "icarl", "exemplars": 60},
}
PER_CLASS = 8


def draw_task_images(model: str, task: int) -> list[np.ndarray]:
    """Draw two classes of noise that occur in no other model or task."""
    draw = np.random.default_rng([sorted(METHODS).index(model), task])
    return [draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(2 * PER_CLASS)]


def encode_png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def build_batch(model: str, task: int) -> bytes:
    pictures = enumerate(draw_task_images(model, task))
    return small.pack_zip(
        {
            f"c{2 * task + number % 2}/{number}.png": encode_png(pixels)
            for number, pixels in pictures
        }
    )


def build_marks(pixels: np.ndarray) -> list[bytes]:
    """Return the byte patterns that reveal an image in a file.

    These are rows of it in both layouts, the middle of its PNG, and its hash.
    """
    encoded = encode_png(pixels)
    rows = [row.tobytes() for row in (pixels[3], pixels[5], *pixels.transpose(2, 0, 1)[:, 4])]
    return [
        *rows,
        encoded[len(encoded) // 2 :][:32],
        hash_images_perceptually(pixels[None])[0].tobytes(),
    ]


def read_contents(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # a temporary file of somebody who works
    yield data
    if data[:4] == b"PK\x03\x04":
        # A file may be half written.
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield archive.read(name)


def find_files_with_images(
    roots: list[Path], model: str, task: int, since: float
) -> dict[str, int]:
    """Return the files that hold data of a task's images, each with the number of images.

    Files that were not written to after `since` (Unix seconds) hold data of other tests.
    """
    wanted = [build_marks(pixels) for pixels in draw_task_images(model, task)]
    found: dict[str, int] = {}
    files = (
        path
        for root in roots
        for path in (list_live_files(root, since) if root.is_dir() else [root])
    )
    for path in files:
        for data in read_contents(path):
            count = sum(any(mark in data for mark in of_image) for of_image in wanted)
            if count:
                found[str(path)] = max(count, found.get(str(path), 0))
    return found


def check_deletion(
    client: Rest,
    models: list[str],
    roots: Callable[[], list[Path]],
    machines: list[Mapping[str, str]],
    folder: Path,
) -> None:
    """Check that images are found before their deletion and are gone afterwards.

    They are gone once the next version exists and each machine has swept.
    """
    began = time.time()
    for model in models:
        small.create_small_model(client, model, METHODS[model], image=IMAGE)
    learn_task(client, models, 0)
    learn_task(client, models, 1)
    digests = {
        model: [client.download(model, v, folder / "v.zip").sha256 for v in (1, 2)]
        for model in models
    }
    for model in models:
        picture = ("image", ("a.png", encode_png(draw_task_images(model, 0)[0]), "image/png"))
        client.call("POST", f"/v1/models/{model}/versions/2/predict", files=[picture])
    before = {model: find_files_with_images(roots(), model, 0, began) for model in models}
    for model, found in before.items():
        assert max(found.values()) > PER_CLASS, (
            model,
            found,
        )  # the memory; the held-out part has fewer
        assert len(found) >= 2  # held-out part, and the pack of images that both versions share
        client.tasks.delete_data(model, 1)
    sweep_machines(machines)
    between = {model: find_files_with_images(roots(), model, 0, began) for model in models}
    for (
        model,
        found,
    ) in between.items():  # memories are all that is left, until the next version is made
        versions = [client.get(f"/v1/models/{model}/versions/{number}") for number in (1, 2)]
        parts = [part for version in versions for part in version["parts"]]
        memories = {part["sha256"] for part in parts if part["type"] in ("buffer", "exemplars")}
        assert {hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in found} <= memories
        assert found
    learn_task(client, models, 2)
    sweep_machines(machines)
    for model in models:
        assert find_files_with_images(roots(), model, 0, began) == {}
        left = find_files_with_images(roots(), model, 1, began)
        assert max(left.values()) > 2 * PER_CLASS // 3, (
            model,
            left,
        )  # what was not deleted is found as ever
        now = [client.download(model, v, folder / "v.zip").sha256 for v in (1, 2)]
        assert now == digests[model]  # versions stay what they were
        matrix = client.get(f"/v1/models/{model}/metrics?version=3")["accuracy_matrix"]
        assert matrix[1][0] is not None and matrix[3][0] is None
        print(
            f"{model}: {summarise_files(before[model])} before, {summarise_files(between[model])} deleted, none "
            f"after the next version"
        )
    assert "Database and store agree." in run_housekeeping(machines[0], "check", "--verify")


def summarise_files(found: Mapping[str, int]) -> str:
    return f"{len(found)} files with up to {max(found.values(), default=0)} images"


def sweep_machines(machines: list[Mapping[str, str]]) -> None:
    """Sweep on each machine as the operator does, without a grace period."""
    for environment in machines:
        run_housekeeping(environment, "sweep", "--grace-hours", "0")


def learn_task(client: Rest, models: list[str], task: int) -> None:
    jobs = [client.submit(model, build_batch(model, task)).id for model in models]
    for job in jobs:
        end = client.wait(job)
        assert end.state == "succeeded", end


@pytest.mark.slow
def test_deleted_images_are_found_nowhere_in_the_small_size(
    client: Rest, running: service.RunningService, tmp_path: Path
) -> None:
    """Exemplars lie in the same packs. Snapshots are too rare in this test.

    `tests/core/retention/test_deleted_data.py` covers them.
    """
    data = running.data_dir
    check_deletion(
        client, ["replay"], lambda: [data], [{"PERENNIAL_DATA_DIR": str(data)}], tmp_path
    )


@pytest.mark.campaign
def test_deleted_images_are_found_nowhere_in_the_large_size(
    tmp_path: Path, postgres_url: str, redis_url: str, s3: Any
) -> None:
    s3_store = s3.url(s3.bucket, "deleted-data")
    environment = {"PERENNIAL_STORE_URL": s3_store, "PERENNIAL_SNAPSHOT_S": "0.1"}
    with large_size.run_large_size(tmp_path, postgres_url, redis_url, s3, **environment) as (
        large,
        client,
    ):
        machines = [
            {**large.environment, "PERENNIAL_DATA_DIR": str(large.data(name))}
            for name in (*large_size.WORKERS, "api")
        ]

        def list_searched_paths() -> list[Path]:
            dump = tmp_path / "dump.sql"
            url = (
                make_url(postgres_url)
                .set(drivername="postgresql")
                .render_as_string(hide_password=False)
            )
            subprocess.run(["pg_dump", "--file", dump, url], check=True)
            return [s3.root / "node", dump, *(large.data(name) for name in large.processes)]

        check_deletion(client, list(METHODS), list_searched_paths, machines, tmp_path)
