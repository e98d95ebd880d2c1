"""Commands and code of the documents run as they stand: each document's in one bash, all against one service.

A block that does not run here is in `NOT_RUN` with the reason.
"""

import re
from pathlib import Path

import pytest
from documents import ROOT, blocks, documents

from tests.docs.reader import Reader
from tools import service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = "tests/docs/test_readme_hour.py runs the section"
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
API = "docs/reference/api.md"
"""Has the short names by which how-tos ask by curl."""
WEBHOOKS = "docs/howto/be-told-by-webhook.md"
TUTORIAL = "docs/tutorial.md"
REPLACED = {
    (TUTORIAL, "from tools import digits"): "from tests.docs import few_digits as digits",
    (WEBHOOKS, "sleep 1"): "until (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null; do sleep 0.1; done",
    (WEBHOOKS, "sleep 3"): "until grep -q alias.moved told.txt; do sleep 0.1; done",
    (API, "sleep 1"): "sleep 0.1",
}
"""(Document, words of its commands) → what runs in their place: with fewer images, or until an event."""


def reason(document: str, block: str) -> str | None:
    """Why a block does not run here; None: it does."""
    for (name, start), why in NOT_RUN.items():
        if name == document and block.startswith(start):
            return why
    return None


def runnable(document: str) -> list[str]:
    """The blocks of a document that run here."""
    found = [block for _, block in blocks(document) if reason(document, block) is None]
    for (name, words), others in REPLACED.items():
        if name == document:
            assert any(words in block for block in found), words
            found = [block.replace(words, others) for block in found]
    return found


RUN = [document for document in documents() if runnable(document)]
IN_EACH_BUILD = {
    TUTORIAL,
    API,
    *(
        f"docs/howto/{name}.md"
        for name in (
            "be-told-by-webhook",
            "delete-a-tasks-data",
            "learn-from-a-labelling-tool",
            "retrain-on-a-schedule",
            "send-a-batch",
            "upload-large-batches",
        )
    ),
}
"""Documents whose commands take seconds, and the tutorial; all others are run before a release."""


@pytest.mark.parametrize(
    "document",
    [pytest.param(name, marks=() if name in IN_EACH_BUILD else pytest.mark.campaign) for name in RUN],
)
def test_the_commands_of_a_document_do_what_they_say(document: str, reader: Reader) -> None:
    if "resnet18.pth" in "".join(runnable(document)):
        save_checkpoint(reader.folder / "resnet18.pth")
    names = [block for block in runnable(API) if block.startswith("export KEY=")]
    script = "\n".join(["set -euo pipefail", *names, *runnable(document)])
    done = reader.run("bash", "-c", script.replace("8099", str(service.free_port())))
    print(done.stdout[-8000:])
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if '"/problems/' in line] == []
    assert [line for line in shown(document) if line not in masked(done.stdout)] == []


def save_checkpoint(path: Path) -> None:
    """Save a state dict as torchvision's own program does."""
    import torch

    from core.learn.torchvision_import import torchvision_models

    torch.save(torchvision_models().resnet18(weights=None).state_dict(), path)


def shown(document: str) -> list[str]:
    """What a document shows as printed by its commands, line by line; `…` stands for what is left out."""
    text = (ROOT / document).read_text()
    outputs = re.findall(r"```sh\n.*?^```\n\n```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip().removesuffix("…").rstrip() for output in outputs for line in output.splitlines()]
    return [masked(line) for line in lines if line]


def masked(text: str) -> str:
    """A text without the figures and ids that differ from run to run."""
    return re.sub(r"\d+(,\d{3})*(\.\d+)?(e-\d+)?", "#", re.sub(r"\b([a-z]{3})_[0-9a-z]{26}\b", r"\1_#", text))
