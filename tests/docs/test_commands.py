"""Commands and code of the documents run as they stand: each document's in one bash, all against
one service.

Those of the README, and of the story of a bad batch, come with what they must have done.

A block that does not run here is in `NOT_RUN` with the reason.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import ROOT, list_documents, read_blocks

from perennial import Perennial
from tests.docs.reader import Reader
from tools import service

pytestmark = pytest.mark.slow

OWN_TEST = "a test of its own runs it"
STORY = "the fixture `story` runs the document"
CI = ".ci/run runs it, from the README of a clean clone"
PROGRAMS = "tests/client/test_readme.py runs them, one after the other"
ADDED = "tests/e2e/test_additions.py adds it to a copy of the sources"
INSTALLED = "tests/tools/release/test_distributions.py does it, with files that it builds"
CONTAINERS = (
    "tests/test_containers.py compares it with docker-compose.yml; it needs Docker or servers"
)
README = (ROOT / "README.md").read_text()
BAD_BATCH = "docs/howto/handle-a-bad-batch.md"
NOT_RUN = {
    ("README.md", "make demo"): CI,
    ("README.md", "make test-all"): CI,
    ("README.md", "make serve"): OWN_TEST,
    ("README.md", "export PATH="): OWN_TEST,
    ("README.md", "from perennial import Perennial"): OWN_TEST,
    (BAD_BATCH, "export PATH="): STORY,
    (BAD_BATCH, "perennial models create birds"): STORY,
    (BAD_BATCH, "perennial submit birds week-32.zip"): STORY,
    (BAD_BATCH, "perennial jobs retry"): STORY,
    (BAD_BATCH, "perennial metrics birds"): STORY,
    (BAD_BATCH, "perennial rollback birds"): STORY,
    ("client/README.md", "from perennial import"): PROGRAMS,
    ("client/README.md", "import asyncio"): PROGRAMS,
    ("CONTRIBUTING.md", "make test"): "a part of what CI runs",
    (
        "CONTRIBUTING.md",
        "pre-commit install",
    ): "it changes the checkout; the hooks are those of `make check`",
    (
        "CONTRIBUTING.md",
        "python -m tests.before_after.record",
    ): "it needs two checkouts, and takes minutes",
    ("docs/tutorial.md", "make serve"): "the fixture starts the service",
    ("docs/howto/install.md", "sha256sum --check"): INSTALLED,
    ("docs/howto/install.md", "python3 -m venv perennial"): INSTALLED,
    ("docs/howto/install.md", "perennial/bin/perennial doctor"): INSTALLED,
    ("docs/howto/install.md", "python3 -m venv client"): "tests/client/test_wheel.py does it",
    ("docs/howto/run-at-the-large-size.md", "sh deploy/secrets.sh"): CONTAINERS,
    ("docs/howto/run-at-the-large-size.md", "export PERENNIAL_DATABASE_URL"): CONTAINERS,
    (
        "docs/howto/back-up-and-restore.md",
        "mc mirror live",
    ): "tests/e2e/test_restore.py does it, by pg_dump",
    (
        "docs/howto/back-up-and-restore.md",
        "pg_restore",
    ): "tests/e2e/test_restore.py does it, by pg_restore",
    ("docs/howto/submit-what-you-have.md", "pip install"): "the tests have what it installs",
    ("docs/howto/compare-methods.md", "pip install"): "the tests have what it installs",
    (
        "docs/howto/compare-methods.md",
        "perennial compare-methods DIR",
    ): "tests/client/test_compare_methods.py does it",
    ("docs/howto/add-a-reader.md", '"""cpio'): ADDED,
    ("docs/howto/add-an-export-format.md", '"""The weights alone'): ADDED,
    (
        "docs/howto/add-a-job-kind.md",
        '"""Read every part',
    ): "tests/core/execution/test_added_kind.py adds it",
}
"""(Document, how its block begins) → why it does not run here."""
API = "docs/reference/api.md"
"""Has the short names by which how-tos ask by curl."""
WEBHOOKS = "docs/howto/receive-webhooks.md"
TUTORIAL = "docs/tutorial.md"
SMALL_BASE = "perennial/resnet20-cifar100"
REPLACED = {
    (TUTORIAL, "from tools import digits"): "from tests.docs import few_digits as digits",
    (
        WEBHOOKS,
        "sleep 1",
    ): "until (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null; do sleep 0.3; done",
    (WEBHOOKS, "sleep 3"): "until grep -q alias.moved told.txt; do sleep 0.3; done",
    (API, "sleep 1"): "sleep 0.5",
}
"""(Document, words of its commands) → what runs in their place: with fewer images, or until an
event.
"""


def find_reason_not_to_run(document: str, block: str) -> str | None:
    """Return why a block does not run here, or None if it does."""
    for (name, start), why in NOT_RUN.items():
        if name == document and block.startswith(start):
            return why
    return None


def list_runnable_blocks(document: str) -> list[str]:
    """Return the blocks of a document that run here."""
    found = [
        block
        for _, block in read_blocks(document)
        if find_reason_not_to_run(document, block) is None
    ]
    for (name, words), others in REPLACED.items():
        if name == document:
            assert any(words in block for block in found), words
            found = [block.replace(words, others) for block in found]
    return found


RUN = [document for document in list_documents() if list_runnable_blocks(document)]
IN_EACH_BUILD = {API}
"""The document whose commands run in each build, beside those of the README; those of all others
are run before a release. Each build tries every command and option that they name
(`tests/docs/test_named_commands.py`), and what the commands do by tests of the client and of the
service: `tests/client/pack/` packs each layout of `docs/howto/send-a-batch.md`."""
OF_THE_STORY = pytest.mark.campaign
"""`tests/client/test_command_line.py` shows what the commands of the story do: a held version ends
with 10 and names how to go on, production goes back and forth, versions are downloaded and
predict."""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(name, marks=() if name in IN_EACH_BUILD else pytest.mark.campaign)
        for name in RUN
    ],
)
def test_the_commands_of_a_document_do_what_they_say(document: str, reader: Reader) -> None:
    if "resnet18.pth" in "".join(list_runnable_blocks(document)):
        save_checkpoint(reader.folder / "resnet18.pth")
    names = [block for block in list_runnable_blocks(API) if block.startswith("export KEY=")]
    script = "\n".join(["set -euo pipefail", *names, *list_runnable_blocks(document)])
    reader.collect(script)
    done = reader.run("bash", "-c", script.replace("8099", str(service.find_free_port())))
    print(done.stdout[-8000:])
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if '"/problems/' in line] == []
    assert [
        line for line in list_shown_lines(document) if line not in mask_figures(done.stdout)
    ] == []


@pytest.mark.parametrize(
    ("logs_in", "status", "said"),
    [
        (False, 2, "make it with `perennial login --profile nightly`"),
        # tests/client/test_watch_folder.py learns such a batch; named_commands tries each option
        pytest.param(True, 0, "learned: version 1", marks=pytest.mark.campaign),
    ],
)
def test_the_crontab_line_works_with_the_environment_of_cron_after_the_login(
    reader: Reader, tmp_path: Path, logs_in: bool, status: int, said: str
) -> None:
    how_to = (ROOT / "docs" / "howto" / "retrain-on-a-schedule.md").read_text()
    (line,) = re.findall(r"^ *30 2 \* \* \* +(.*)$", how_to, re.MULTILINE)
    (login,) = re.findall(r"^ *(perennial login .*)$", how_to, re.MULTILINE)
    inbox, home, key = tmp_path / "inbox", str(tmp_path / "home"), reader.make_blob_key("cron")
    inbox.mkdir()
    shutil.copy(reader.folder / "week-31.zip", inbox)
    (inbox / "week-31.zip.done").touch()
    if logs_in:
        login = login.replace("https://perennial.example.org", reader.running.url)
        steps = f"{login} && perennial models create nightly --profile nightly --base {SMALL_BASE}"
        done = reader.run(
            "bash", "-c", f"echo {key} | {steps}", HOME=home, PERENNIAL_URL="", PERENNIAL_API_KEY=""
        )
        assert done.returncode == 0, done.stdout
    command = shutil.which("perennial", path=reader.environment["PATH"])
    assert command is not None
    line = line.replace("/srv/nightly", str(tmp_path)).replace(
        "/srv/perennial/.venv/bin/perennial", command
    )
    cron = {"HOME": home, "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"}
    job = subprocess.run(
        ["/bin/sh", "-c", line], env=cron, capture_output=True, text=True, check=False
    )
    assert (job.returncode, said in job.stdout + job.stderr) == (status, True), (
        job.stdout + job.stderr
    )


def save_checkpoint(path: Path) -> None:
    """Save a state dict as torchvision's own program does."""
    import torch

    from core.learning.torchvision_import import import_torchvision_models

    torch.save(import_torchvision_models().resnet18(weights=None).state_dict(), path)


def list_shown_lines(document: str) -> list[str]:
    """Return the lines that a document shows as printed by its commands.
    `…` stands for what is left out.
    """
    text = (ROOT / document).read_text()
    outputs = re.findall(r"```sh\n.*?^```\n\n```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [
        line.strip().removesuffix("…").rstrip()
        for output in outputs
        for line in output.splitlines()
    ]
    return [mask_figures(line) for line in lines if line]


def mask_figures(text: str) -> str:
    """Return a text without the figures and ids that differ from run to run."""
    return re.sub(
        r"\d+(,\d{3})*(\.\d+)?(e-\d+)?", "#", re.sub(r"\b([a-z]{3})_[0-9a-z]{26}\b", r"\1_#", text)
    )


@dataclass
class Story:
    """Output of each block, and a client with the key that the commands had."""

    said: list[str]
    client: Perennial
    key: str
    reader: Reader


def list_shell_blocks(text: str) -> list[str]:
    """Return the shell blocks of a text, without one that starts the service."""
    return [b for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if b != "make serve\n"]


@pytest.fixture(scope="module")
def story(reader: Reader) -> Iterator[Story]:
    """Run all blocks in one bash."""
    written = list_shell_blocks((ROOT / BAD_BATCH).read_text())
    marked = [f"echo '=== block {number} ==='\n{block}" for number, block in enumerate(written)]
    reader.collect("".join(written))
    key = reader.make_blob_key("story")
    done = reader.run(
        "bash", "-c", "\n".join(["set -euo pipefail", *marked]), PERENNIAL_API_KEY=key
    )
    print(done.stdout[-6000:])
    assert done.returncode == 0
    with Perennial(key, base_url=reader.running.url) as client:
        yield Story(re.split(r"=== block \d+ ===\n", done.stdout)[1:], client, key, reader)


@OF_THE_STORY
def test_no_command_of_the_story_fails_but_for_the_held_version(story: Story) -> None:
    said = story.said
    assert [text.count("exit status") for text in said] == [0, 0, 1, 0, 0, 0]
    assert "exit status 10" in said[2]
    assert not any("Traceback" in text for text in said)


@OF_THE_STORY
def test_the_second_version_is_held_and_the_commands_that_go_on_are_told(story: Story) -> None:
    said, client = story.said, story.client
    assert "Version 2 of birds is held by the gate; production stays at version 1." in said[2]
    assert "it forgot more than the gate allows: " in said[2]
    for command in (
        "promote birds 2",
        "jobs retry job_",
        "tasks discard birds 2",
        "tasks continue birds 2",
    ):
        assert f"perennial {command}" in said[2]
    assert client.versions.retrieve("birds", 2).status == "held"


@OF_THE_STORY
def test_the_story_downloads_and_predicts(story: Story) -> None:
    said, folder = story.said, story.reader.folder
    assert zipfile.ZipFile(folder / "birds.zip").testzip() is None
    rows = [
        line.split("\t")
        for line in said[4].splitlines()
        if line.startswith(("bird.png", "owl.jpg"))
    ]
    assert [len(row) for row in rows] == [4, 4], "three labels each"


@OF_THE_STORY
def test_the_rollback_names_what_it_costs_and_nothing_is_left_to_settle(story: Story) -> None:
    said, client = story.said, story.client
    assert "production of birds is at version 1." in said[5]
    assert "Version 1 was not taught task 2" in said[5]
    seen = client.models.retrieve("birds")
    assert (seen.attention, seen.production_follows) == ([], True)
    assert client.versions.retrieve("birds", "production").tasks == [1, 2]


def test_the_commands_of_the_readme_put_own_photos_into_production(reader: Reader) -> None:
    (script,) = list_shell_blocks(README.split("## Use it on your own photos")[1].split("\n## ")[0])
    assert len(re.findall("^perennial ", script, re.MULTILINE)) == 5
    reader.collect(script)
    key = reader.make_blob_key("readme")
    done = reader.run("bash", "-euo", "pipefail", "-c", script, PERENNIAL_API_KEY=key)
    assert done.returncode == 0, done.stdout
    with Perennial(key, base_url=reader.running.url) as client:
        assert client.versions.retrieve("birds", "production").tasks == [1, 2]
    assert done.stdout.splitlines()[-1].startswith("bird.png")


def test_the_program_of_the_readme_makes_a_version_of_a_folder_of_photos(
    reader: Reader, tmp_path: Path
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) == 5
    program = program.replace('"birds.zip"', f'"{tmp_path}/photos.zip"')
    reader.collect(program)
    key = reader.make_blob_key("program")
    done = reader.run(sys.executable, "-c", program, PERENNIAL_API_KEY=key)
    assert done.returncode == 0, done.stdout
    digest = hashlib.sha256((tmp_path / "photos.zip").read_bytes()).hexdigest()
    assert done.stdout.rstrip().endswith(digest)
    with Perennial(key, base_url=reader.running.url) as client:
        assert client.versions.retrieve("birds").number == 1
