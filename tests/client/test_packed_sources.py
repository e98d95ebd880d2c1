"""Every kind of source becomes the same data set at a real service as the folder that it
came from.
"""

import io
import tarfile
from pathlib import Path

import pytest

from perennial.pack import open_batch
from tests.client.pack.sources import CROPS, KINDS, write_class_folders, write_crops
from tests.rest import Json, Rest
from tools.service import RunningService

pytestmark = pytest.mark.slow

LEARNED = ("labels.csv", *CROPS[:1])
"""Kinds that a service learns in every run, one of whole images and one of crops;
`pack/test_bytes.py` shows part, label and bytes of all whole images.
"""
MODEL = {
    "architecture": {"name": "mlp", "hidden": [16]},
    "image": {"size": 8, "channels": 3},
    "recipe": {"method": {"name": "finetune"}, "epochs": 1, "batch_size": 16},
}


@pytest.fixture(scope="module")
def client(running: RunningService) -> Rest:
    return Rest(running.url, running.key)


def learn_batch(client: Rest, name: str, batch: bytes) -> tuple[Json, Json]:
    """Send a batch to a new model, and return the digests of its data set and the report."""
    client.models.create(name, **MODEL)
    job = client.wait(client.submit(name, batch))
    assert job.state == "succeeded", job
    task = client.get(f"/v1/models/{name}/tasks/1")
    return client.get(f"/v1/models/{name}/versions/1")["manifest"]["datasets"], task["report"]


@pytest.fixture(scope="module")
def of_folder(client: Rest, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The digests of the data sets of the folders, each packed by the system's own tar."""
    found: Json = {}
    for name, make in (("images", write_class_folders), ("crops", write_crops)):
        at, out = make(tmp_path_factory.mktemp(name)), io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path in sorted(path for path in at.rglob("*") if path.is_file()):
                tar.add(path, path.relative_to(at))
        found[name], _ = learn_batch(client, f"from-{name}", out.getvalue())
    assert len({digest for digests in found.values() for digest in digests.values() if digest}) == 4
    return found


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in LEARNED else pytest.mark.campaign) for kind in KINDS],
)
def test_a_batch_is_the_data_set_of_the_folder_that_it_came_from(
    kind: str, client: Rest, of_folder: Json, tmp_path: Path
) -> None:
    make, options = KINDS[kind]
    batch = open_batch(make(tmp_path), **options)  # type: ignore[arg-type]
    digests, report = learn_batch(
        client, f"kind-{kind.replace('.', '-')}", b"".join(batch.read_chunks())
    )
    assert digests == of_folder["crops" if kind in CROPS else "images"]
    assert report["rejected_count"] == report["ignored"] == 0
