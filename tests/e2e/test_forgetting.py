"""Images that an edit removed, and all data learned from them, are gone afterwards."""

import hashlib
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import large_size
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sqlalchemy.engine import make_url

from core.contract.manifest import FEATURES
from core.ingest.findings.traces import read_image_fingerprints
from core.learning.analytic.rows import digest_each_image
from core.statistics.near_duplicates import hash_images_perceptually
from tests.e2e.edited import (
    METHODS,
    create_corrected_model,
    create_learned_model,
    describe_newest_version,
    edit_model,
)
from tests.e2e.small import WEEKS, create_small_model, learn_batches, pack_zip
from tests.e2e.test_deleted_data import encode_png, read_contents
from tests.live_files import list_live_files, read_live_files
from tests.rest import Json, Rest
from tools.service import RunningService

pytestmark = pytest.mark.slow

PER_CLASS = 10
Pixels = np.ndarray


def draw_images(model: str, task: int, count: int) -> list[Pixels]:
    """Draw noise of 8 × 8 pixels that occurs nowhere else."""
    rng = np.random.default_rng([*model.encode(), task])
    return [rng.integers(0, 256, (8, 8, 1), dtype=np.uint8) for _ in range(count)]


def make_image_path(part: str, task: int, label: str, number: int) -> str:
    """Return the path of an image; the first two of each class and part are those to forget."""
    return f"{part}/{label}/{'anna' if number < 2 else 'bob'}-{task}-{part}-{label}-{number}.png"


def build_batch(model: str, task: int) -> tuple[dict[str, bytes], list[Pixels]]:
    """Return the files of a batch, and the pixels of the images that are to be forgotten."""
    labels = [f"c{2 * task}", f"c{2 * task + 1}"]
    images = iter(draw_images(model, task, 4 * PER_CLASS))
    files: dict[str, bytes] = {}
    forgotten: list[Pixels] = []
    for part in ("train", "test"):
        for label in labels:
            for number in range(PER_CLASS):
                pixels = next(images)
                files[make_image_path(part, task, label, number)] = encode_png(pixels[:, :, 0])
                if number < 2:
                    forgotten.append(pixels)
    # The same picture twice, once under another label: the report names both and shows one.
    first = make_image_path("train", task, labels[0], 0)
    files[f"train/{labels[0]}/anna-again-{task}.png"] = files[first]
    files[f"train/{labels[1]}/anna-otherwise-{task}.png"] = files[first]
    return files, forgotten


def build_image_marks(pixels: Pixels, seed: int) -> list[bytes]:
    """Return the forms of an image in a file: its pixels, its PNG, and digests of both."""
    encoded = encode_png(pixels[:, :, 0])
    return [
        pixels.tobytes()[16:48],
        encoded[len(encoded) // 2 :][:32],
        hash_images_perceptually(pixels[None])[0].tobytes(),
        bytes(digest_each_image(torch.from_numpy(pixels[None]), seed)[0].tolist()),
        hashlib.sha256(encoded).digest(),
        hashlib.sha256(encoded).hexdigest().encode(),
        hashlib.sha256(pixels.tobytes()).digest(),
        hashlib.sha256(pixels.tobytes()).hexdigest().encode(),
    ]


def read_feature_rows(store: Path, client: Rest, model: str, keys: list[bytes]) -> list[bytes]:
    """Return the bytes of the stored features of images, found by their keys."""
    rows: list[bytes] = []
    # By content: an S3 server has names of its own for its files.
    paths = {hashlib.sha256(data).hexdigest(): path for path, data in read_live_files(store)}
    for version in client.read_versions(model):
        for part in version["manifest"]["parts"]:
            if part["type"] != FEATURES:
                continue
            tensors = load_file(paths[part["sha256"]])
            for name in [name for name in tensors if name.endswith(".keys")]:
                features = tensors[name.replace(".keys", ".features")]
                rows += [
                    row.tobytes()
                    for row, key in zip(features, tensors[name], strict=True)
                    if key.tobytes() in keys
                ]
    return rows


def search_for_marks(
    files: Iterator[Path], dump: Iterable[bytes], marks: list[bytes]
) -> dict[str, str]:
    """Return the files and the lines of the database's dump that contain a mark, with that mark."""
    found: dict[str, str] = {}
    # Blobs are digits in a dump.
    written = [*marks, *(mark.hex().encode() for mark in marks if not mark.isascii())]
    for line in dump:
        small = line.lower()
        for mark in written:
            if mark in line or mark in small:
                at = max(line.find(mark), small.find(mark))
                found[f"dump: {line[:60]!r}"] = str(line[max(0, at - 150) : at + 100])
    for path in files:
        for data in (*read_contents(path), *read_image_paths(path)):
            if held := next((mark for mark in marks if mark in data), None):
                found[str(path)] = str(held[:80])
    return found


def read_image_paths(path: Path) -> list[bytes]:
    """Return the paths of images in a file of traces, where they are packed."""
    try:
        return ["\n".join(read_image_fingerprints(path).names).encode()]
    except (ValueError, FileNotFoundError):
        return []


def read_database_lines(data_dir: Path) -> set[bytes]:
    """Return the lines of the whole database as SQL."""
    (path,) = data_dir.glob("*.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return set("\n".join(connection.iterdump()).encode().splitlines())


def list_service_files(data_dir: Path, since: float) -> Iterator[Path]:
    """Return every file of a small service except its database.

    These are the files of the store, the spool, caches and scratch folders. Files that were not
    written to after `since` (Unix seconds) hold data of other tests.
    """
    return (path for path in list_live_files(data_dir, since) if ".db" not in path.name)


def check_forgetting(client: Rest, name: str, method: Json, store: Path, look: Any) -> None:
    """Teach a model images to be forgotten, remove and purge them, and search everything."""
    create_small_model(client, name, method, training_data_days=7)
    marks: list[bytes] = []
    keys: list[bytes] = []
    for task in range(2):
        files, forgotten = build_batch(name, task)
        learn_batches(client, name, pack_zip(files), keep_conflicts=True)
        marks += [b"anna-"]
        for pixels in forgotten:
            marks += build_image_marks(pixels, 0)
            keys.append(build_image_marks(pixels, 0)[3])
    rows = read_feature_rows(store, client, name, keys)
    assert bool(rows) == ("analytic" in str(method))
    marks += rows
    before = look(marks)
    assert any(where.startswith("dump") for where in before) and len(before) > 3, before
    made = edit_model(client, name, [{"remove": {"name": "*anna-*"}}])
    assert made["images"]["removed"] == 2 * (8 + 2)
    asked = made["purge_request"]
    assert asked == {"method": "POST", "path": f"/v1/models/{name}/edits/1/purge"}
    purged = client.call(asked["method"], asked["path"]).json()
    assert purged["still_in_versions"] == [] and purged["purge_request"] is None
    # Each process deletes its own copies of deleted blobs about once a minute.
    end = time.monotonic() + 180
    while found := look(marks):
        assert time.monotonic() < end, found
        time.sleep(1)
    # What was not removed is found as ever, and the model goes on.
    assert look([b"bob-"])
    learn_batches(client, name, WEEKS[0])


@pytest.mark.parametrize("method", ["auto", pytest.param("er", marks=pytest.mark.campaign)])
def test_nothing_of_purged_images_is_left_in_store_or_database(
    client: Rest, running: RunningService, method: str
) -> None:
    data = running.data_dir
    # Other tests share the service. Rows and files older than this test hold nothing of these images.
    began, rows = time.time(), read_database_lines(data)

    def find_marks(marks: list[bytes]) -> dict[str, str]:
        return search_for_marks(
            list_service_files(data, began), read_database_lines(data) - rows, marks
        )

    check_forgetting(client, f"forgets-{method}", METHODS[method], data / "store", find_marks)


@pytest.mark.campaign
def test_nothing_of_purged_images_is_left_in_the_large_size(
    tmp_path: Path, postgres_url: str, redis_url: str, s3: Any
) -> None:
    url = make_url(postgres_url).set(drivername="postgresql")

    def find_marks(marks: list[bytes]) -> dict[str, str]:
        command = ["pg_dump", url.render_as_string(hide_password=False)]
        dump = subprocess.run(command, check=True, capture_output=True).stdout.splitlines()
        roots = [s3.root / "node", *(large.data(name) for name in large.processes)]
        files = (path for root in roots for path in list_live_files(root))
        return search_for_marks(files, dump, marks)

    environment = {"PERENNIAL_STORE_URL": s3.url(s3.bucket, "forgets")}
    with large_size.run_large_size(tmp_path, postgres_url, redis_url, s3, **environment) as (
        large,
        client,
    ):
        for method in ("auto", "er"):
            check_forgetting(client, f"forgets-{method}", METHODS[method], s3.root, find_marks)


TASKS_AND_CLASSES = [
    *({"remove": {"task": task}} for task in range(1, 6)),
    *({"drop": {"class": str(digit)}} for digit in range(10)),
]


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        pytest.param(
            method,
            operation,
            marks=pytest.mark.campaign,
            id=f"{method}-{'-'.join(str(v) for one in operation.values() for v in one.values())}"
            f"-{next(iter(operation))}",
        )
        for method in ("auto", "er")
        for operation in TASKS_AND_CLASSES
        # Without the last task, the version before is the model that never saw it.
        if (method, operation) != ("er", {"remove": {"task": 5}})
    ],
)
def test_each_task_and_class_of_five_is_forgotten_to_the_same_bits(
    client: Rest, method: str, operation: Json
) -> None:
    model = create_learned_model(client, METHODS[method], weeks=5)
    edit_model(client, model, [operation])
    other = create_corrected_model(client, model, METHODS[method])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


MEMBERS = 400
MEMORISING: dict[str, tuple[Json, Json]] = {
    "relearn": (
        {"name": "finetune"},
        {"epochs": 150, "batch_size": 32, "augment": "none", "optimizer": {"lr": 0.05}},
    ),
    "recompute": (
        {
            **{"name": "analytic", "head": "ridge", "projection": 2000, "balanced": False},
            **{"offsets": False, "strength": 1e-6},
        },
        {},
    ),
}
"""Way → method and recipe of a model that memorises the labels of noise."""


def score_labels(client: Rest, model: str, pictures: list[bytes], labels: list[str]) -> np.ndarray:
    """Return the probability that a model gives each picture's label."""
    scores: list[float] = []
    for start in range(0, len(pictures), 50):
        answer = client.predict(model, pictures[start : start + 50])
        for one, label in zip(answer.predictions, labels[start : start + 50], strict=True):
            scores.append(dict(one.probabilities)[label])
    return np.array(scores)


def measure_auc(members: np.ndarray, others: np.ndarray) -> float:
    """Return the probability that a member has a greater score than another image."""
    return float((members[:, None] > others).mean() + (members[:, None] == others).mean() / 2)


@pytest.mark.campaign
@pytest.mark.parametrize("way", MEMORISING)
def test_membership_cannot_be_told_once_images_are_forgotten(client: Rest, way: str) -> None:
    method, recipe = MEMORISING[way]
    rng = np.random.default_rng(5)
    noise = [rng.integers(0, 256, (8, 8), dtype=np.uint8) for _ in range(2 * MEMBERS + 200)]
    labels = [str(label) for label in rng.integers(0, 2, len(noise))]
    files = {
        f"train/{labels[at]}/{'member' if at < MEMBERS else 'other'}-{at}.png": encode_png(
            noise[at]
        )
        for at in (*range(MEMBERS), *range(2 * MEMBERS, len(noise)))
    }
    files |= {f"test/{labels[at]}/{at}-t.png": encode_png(255 - noise[at]) for at in range(20)}
    name = f"memorises-{way}"
    create_small_model(
        client,
        name,
        method,
        architecture={"name": "mlp", "hidden": [256]},
        recipe={**recipe, "data_report": "off"},
    )
    learn_batches(client, name, pack_zip(files), WEEKS[3])
    pictures = [encode_png(pixels) for pixels in noise[: 2 * MEMBERS]]

    def measure_membership_auc() -> float:
        scores = score_labels(client, name, pictures, labels[: 2 * MEMBERS])
        return measure_auc(scores[:MEMBERS], scores[MEMBERS:])

    before = measure_membership_auc()
    made = edit_model(client, name, [{"remove": {"name": "*member-*"}}])
    assert made["way"] == way
    after = measure_membership_auc()
    print(f"{way}: AUC {before:.3f} before, {after:.3f} after")
    assert before >= 0.65 and abs(after - 0.5) <= 0.05
