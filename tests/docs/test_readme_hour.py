"""The first hour of the README, copied and pasted: its commands run in bash against a service, as they stand."""

import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import ROOT

from perennial import Perennial
from tests.docs.reader import Reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

README = (ROOT / "README.md").read_text()


@dataclass
class Hour:
    """What each block printed, and a client with the key that the commands had."""

    said: list[str]
    client: Perennial
    key: str
    reader: Reader


def commands() -> list[str]:
    """The shell blocks of “Use it”, without the one that starts the service."""
    section = README.split("## Use it")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert blocks[0] == "make serve\n"
    return blocks[1:]


@pytest.fixture(scope="module")
def hour(reader: Reader) -> Iterator[Hour]:
    """Run all blocks in one bash."""
    marked = [f"echo '=== block {number} ==='\n{block}" for number, block in enumerate(commands())]
    key = reader.key_of("hour")
    done = reader.run("bash", "-c", "\n".join(["set -euo pipefail", *marked]), PERENNIAL_API_KEY=key)
    print(done.stdout[-6000:])
    assert done.returncode == 0
    with Perennial(key, base_url=reader.running.url) as client:
        yield Hour(re.split(r"=== block \d+ ===\n", done.stdout)[1:], client, key, reader)


def test_no_command_of_the_first_hour_fails_but_for_the_held_version(hour: Hour) -> None:
    said = hour.said
    assert [text.count("exit status") for text in said] == [0, 0, 1, 0, 0, 0]
    assert "exit status 10" in said[2]
    assert not any("Traceback" in text for text in said)


def test_the_second_version_is_held_and_the_commands_that_go_on_are_told(hour: Hour) -> None:
    said, client = hour.said, hour.client
    assert "Version 2 of birds is held by the gate; production stays at version 1." in said[2]
    assert "it forgot more than the gate allows: " in said[2]
    for command in ("promote birds 2", "jobs retry job_", "tasks discard birds 2", "tasks continue birds 2"):
        assert f"perennial {command}" in said[2]
    assert client.versions.retrieve("birds", 2).status == "held"


def test_the_hour_downloads_and_predicts(hour: Hour) -> None:
    said, folder = hour.said, hour.reader.folder
    assert zipfile.ZipFile(folder / "birds.zip").testzip() is None
    rows = [line.split("\t") for line in said[4].splitlines() if line.startswith(("bird.png", "owl.jpg"))]
    assert [len(row) for row in rows] == [4, 4], "three labels each"


def test_the_rollback_names_what_it_costs_and_nothing_is_left_to_settle(hour: Hour) -> None:
    said, client = hour.said, hour.client
    assert "production of birds is at version 1." in said[5]
    assert "Version 1 was not taught task 2" in said[5]
    seen = client.models.retrieve("birds")
    assert (seen.attention, seen.production_follows) == ([], True)
    assert client.versions.retrieve("birds", "production").tasks == [1, 2]


def test_the_program_of_the_readme_makes_a_version_of_a_folder_of_photos(hour: Hour, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) == 5
    program = program.replace('"birds"', '"from-photos"').replace('"birds.zip"', f'"{tmp_path}/photos.zip"')
    done = hour.reader.run(sys.executable, "-c", program, PERENNIAL_API_KEY=hour.key)
    assert done.returncode == 0, done.stdout
    digest = hashlib.sha256((tmp_path / "photos.zip").read_bytes()).hexdigest()
    assert done.stdout.rstrip().endswith(digest)
    assert hour.client.versions.retrieve("from-photos").number == 1
