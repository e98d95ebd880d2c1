"""Commands and code of the documents run as they stand: each document's in one bash, all against one service.

A block that does not run here is in `NOT_RUN` with the reason.
"""

import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from documents import ROOT, blocks, documents

from core.learn.torchvision_import import torchvision_models
from tools import digits, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = "tests/e2e/test_readme_hour.py runs the section"
CI = ".ci/run runs it, from the README of a clean clone"
ADDED = "tests/e2e/test_additions.py adds it to a copy of the sources"
CONTAINERS = (
    "tests/test_containers.py compares it with docker-compose.yml; it needs Docker or servers of its own"
)
NOT_RUN = {
    ("README.md", "make demo"): CI,
    ("README.md", "make test"): CI,
    ("README.md", "make serve"): HOUR,
    ("README.md", "export KEY="): HOUR,
    ("README.md", "json $URL/models -d"): HOUR,
    ("README.md", "JOB=$(send --data-binary @week-32.zip"): HOUR,
    ("README.md", "JOB=$(json $URL/jobs/$JOB/retry"): HOUR,
    ("README.md", "api $URL/models/birds/metrics"): HOUR,
    ("README.md", "json $URL/models/birds/aliases/production/rollback"): HOUR,
    ("CONTRIBUTING.md", "make test"): CI,
    ("CONTRIBUTING.md", "pre-commit install"): "it changes the checkout; the hooks are those of `make check`",
    ("CONTRIBUTING.md", "python -m tests.before_after.record"): "it needs two checkouts, and takes minutes",
    ("docs/tutorial.md", "make serve"): "the fixture starts the service",
    ("docs/howto/run-at-the-large-size.md", "sh deploy/secrets.sh"): CONTAINERS,
    ("docs/howto/run-at-the-large-size.md", "export PERENNIAL_DATABASE_URL"): CONTAINERS,
    ("docs/howto/back-up-and-restore.md", "mc mirror live"): "tests/e2e/test_restore.py does it, by pg_dump",
    ("docs/howto/back-up-and-restore.md", "pg_restore"): "tests/e2e/test_restore.py does it, by pg_restore",
    ("docs/howto/add-a-reader.md", '"""cpio'): ADDED,
    ("docs/howto/add-an-export-format.md", '"""The weights alone'): ADDED,
    ("docs/howto/add-a-job-kind.md", '"""Read every part'): "tests/core/work/test_added_kind.py adds it",
}
"""(Document, how its block begins) → why it does not run here."""
TRAIN, TEST = 24, 8
"""Images of a class in a batch."""
TUTORIAL = "docs/tutorial.md"


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
    (folder / ".venv").symlink_to(sys.prefix)
    with service.running(folder / "perennial-data", {"PERENNIAL_THREADS": "1"}) as running:
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
    """What the document's commands print, without the short names that the README gives."""
    names = [block for _, block in blocks("README.md") if block.startswith("export KEY=")]
    script = "\n".join(["set -euo pipefail", *names, *runnable(document)])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PERENNIAL_PORT": (folder / "port").read_text(), "PYTHONPATH": str(ROOT)},
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
