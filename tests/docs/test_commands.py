"""Commands and code of the documents run as they stand: each document's in one bash, all against one service.

A block that does not run here is in `NOT_RUN` with the reason.
"""

import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from documents import ROOT, blocks, documents

from core.learn.torchvision_import import torchvision_models
from tests.client.pack import sources
from tests.own_commands import environment
from tools import digits, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = "tests/e2e/test_readme_hour.py runs the section"
CI = ".ci/run runs it, from the README of a clean clone"
PROGRAMS = "tests/client/test_readme.py runs them, one after the other"
ADDED = "tests/e2e/test_additions.py adds it to a copy of the sources"
CONTAINERS = (
    "tests/test_containers.py compares it with docker-compose.yml; it needs Docker or servers of its own"
)
NOT_RUN = {
    ("README.md", "make demo"): CI,
    ("README.md", "make test-all"): CI,
    ("README.md", "make serve"): HOUR,
    ("README.md", "export PATH="): HOUR,
    ("README.md", "perennial models create birds"): HOUR,
    ("README.md", "perennial submit birds week-32.zip"): HOUR,
    ("README.md", "perennial jobs retry"): HOUR,
    ("README.md", "perennial metrics birds"): HOUR,
    ("README.md", "perennial rollback birds"): HOUR,
    ("README.md", "from perennial import Perennial"): HOUR,
    ("client/README.md", "from perennial import"): PROGRAMS,
    ("client/README.md", "import asyncio"): PROGRAMS,
    ("CONTRIBUTING.md", "make test"): "a part of what CI runs",
    ("CONTRIBUTING.md", "pre-commit install"): "it changes the checkout; the hooks are those of `make check`",
    ("CONTRIBUTING.md", "python -m tests.before_after.record"): "it needs two checkouts, and takes minutes",
    ("docs/tutorial.md", "make serve"): "the fixture starts the service",
    ("docs/howto/run-at-the-large-size.md", "sh deploy/secrets.sh"): CONTAINERS,
    ("docs/howto/run-at-the-large-size.md", "export PERENNIAL_DATABASE_URL"): CONTAINERS,
    ("docs/howto/back-up-and-restore.md", "mc mirror live"): "tests/e2e/test_restore.py does it, by pg_dump",
    ("docs/howto/back-up-and-restore.md", "pg_restore"): "tests/e2e/test_restore.py does it, by pg_restore",
    ("docs/howto/submit-what-you-have.md", "pip install"): "the tests have what it installs",
    ("docs/howto/add-a-reader.md", '"""cpio'): ADDED,
    ("docs/howto/add-an-export-format.md", '"""The weights alone'): ADDED,
    ("docs/howto/add-a-job-kind.md", '"""Read every part'): "tests/core/work/test_added_kind.py adds it",
}
"""(Document, how its block begins) → why it does not run here."""
SETTINGS = {"PERENNIAL_THREADS": "1", "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8"}
TRAIN, TEST = 24, 8
"""Images of a class in a batch."""
COLLECTED = {
    "photos": sources.folder,
    "lists": sources.csv_list,
    "shards": sources.shards,
    "my-dataset": sources.parquet,
    "my-images": sources.imagefolder,
    "coco": sources.coco,
    "yolo": sources.yolo,
}
"""Folders that a reader has, as the tools of others write them."""
API = "docs/reference/api.md"
"""Has the short names by which how-tos ask by curl."""


def reason(document: str, block: str) -> str | None:
    """Why a block does not run here; None: it does."""
    for (name, start), why in NOT_RUN.items():
        if name == document and block.startswith(start):
            return why
    return None


def runnable(document: str) -> list[str]:
    """The blocks of a document that run here."""
    return [block for _, block in blocks(document) if reason(document, block) is None]


RUN = [document for document in documents() if runnable(document)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a reader of the documents stands: batches, two photos, a checkpoint, and the service's data."""
    folder = tmp_path_factory.mktemp("reader")
    for week, (_, archive) in enumerate(digits.archives(), start=31):
        (folder / f"week-{week}.zip").write_bytes(_batch(archive))
    with zipfile.ZipFile(folder / "week-31.zip") as first:
        for name in ("bird.png", "owl.jpg"):  # the service looks at bytes, not at names
            (folder / name).write_bytes(first.read(first.namelist()[0]))
    for name, make in COLLECTED.items():
        make(folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    with service.running(folder / "perennial-data", SETTINGS) as running:
        (folder / "port").write_text(running.url.rsplit(":", 1)[1])
        yield folder


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> None:
    """A state dict as torchvision's own program saves it."""
    torch.save(torchvision_models().resnet18(weights=None).state_dict(), folder / "resnet18.pth")


def _batch(archive: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w") as to:
        for label in sorted({name.split("/")[0] for name in source.namelist()}):
            own = [name for name in source.namelist() if name.startswith(f"{label}/")]
            for place, name in enumerate(own[: TRAIN + TEST]):
                to.writestr(f"{'train' if place < TRAIN else 'test'}/{name}", source.read(name))
    return out.getvalue()


def said(document: str, folder: Path) -> str:
    """What the document's commands print, after the short names for curl; `perennial` is this checkout's."""
    port = (folder / "port").read_text()
    shutil.rmtree(folder / "own", ignore_errors=True)
    names = [block for _, block in blocks(API) if block.startswith("export KEY=")]
    script = "\n".join(["set -euo pipefail", *names, *runnable(document)])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(folder / "own")
        | {"PERENNIAL_PORT": port, "PERENNIAL_URL": f"http://127.0.0.1:{port}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    print(done.stdout[-6000:], done.stderr[-3000:])
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("document", RUN)
@pytest.mark.usefixtures("checkpoint")
def test_the_commands_of_a_document_do_what_they_say(document: str, folder: Path) -> None:
    printed = said(document, folder)
    refused = [line for line in printed.splitlines() if '"/problems/' in line]
    assert refused == []
    missing = [line for line in shown(document) if line not in masked(printed)]
    assert missing == []


def shown(document: str) -> list[str]:
    """What a document shows as printed by its commands, line by line; `…` stands for what is left out."""
    text = (ROOT / document).read_text()
    outputs = re.findall(r"```sh\n.*?^```\n\n```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip().removesuffix("…").rstrip() for output in outputs for line in output.splitlines()]
    return [masked(line) for line in lines if line]


def masked(text: str) -> str:
    """A text without the figures and ids that differ from run to run."""
    return re.sub(r"\d+(,\d{3})*(\.\d+)?(e-\d+)?", "#", re.sub(r"\b([a-z]{3})_[0-9a-z]{26}\b", r"\1_#", text))
