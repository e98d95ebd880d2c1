"""The first hour of the README, copied and pasted: its commands run in bash against a service, as they stand."""

import hashlib
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from perennial import Perennial, types
from tests.own_commands import environment
from tools import digits, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TRAIN, TEST = 24, 8
"""Images of a class."""


def commands() -> list[str]:
    """The shell blocks of “Use it”, without the one that starts the service."""
    section = README.split("## Use it")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert blocks[0] == "make serve\n"
    return blocks[1:]


def batch(archive: bytes) -> bytes:
    """A small batch of real images with a part to learn from and a part to measure."""
    out, counts = io.BytesIO(), {"train": TRAIN, "test": TEST}
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w") as to:
        names = source.namelist()
        for label in sorted({name.split("/")[0] for name in names}):
            own = [name for name in names if name.startswith(f"{label}/")]
            for part, count in counts.items():
                for name in own[:count]:
                    to.writestr(f"{part}/{name}", source.read(name))
                own = own[count:]
    return out.getvalue()


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Perennial, Any]:
    """What each block printed, a client of the service, and the folder; the service ends with the module."""
    folder = tmp_path_factory.mktemp("hour")
    archives = [archive for _, archive in digits.archives()[:3]]
    for week, archive in zip((31, 32, 33), archives, strict=True):
        (folder / f"week-{week}.zip").write_bytes(batch(archive))
    with zipfile.ZipFile(io.BytesIO(archives[0])) as first:
        for name in ("bird.png", "owl.jpg"):  # the service looks at bytes, not at names
            (folder / name).write_bytes(first.read(first.namelist()[0]))
    mark = "=== block {} ==="
    script = "set -euo pipefail\n" + "\n".join(
        f"echo '{mark.format(i)}'\n{block}" for i, block in enumerate(commands())
    )
    with service.running(folder / "perennial-data", {"PERENNIAL_THREADS": "1"}) as running:
        port = running.url.rsplit(":", 1)[1]
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(folder / "own") | {"PERENNIAL_PORT": port},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
        )
        print(done.stdout[-6000:])
        assert done.returncode == 0, done.stdout[-2000:]
        (folder / "said.txt").write_text(done.stdout)
        said = re.split(r"=== block \d+ ===\n", done.stdout)[1:]
        with Perennial(running.key, base_url=running.url) as client:
            yield said, client, folder


def test_no_command_of_the_first_hour_fails_but_for_the_held_version(hour: Any) -> None:
    said, _, _ = hour
    assert [text.count("exit status") for text in said] == [0, 0, 1, 0, 0, 0]
    assert "exit status 10" in said[2]
    assert not any("Traceback" in text for text in said)


def test_the_second_version_is_held_and_the_commands_that_go_on_are_told(hour: Any) -> None:
    said, client, _ = hour
    assert "Version 2 of birds is held by the gate; production stays at version 1." in said[2]
    assert "it forgot more than the gate allows: " in said[2]
    for command in ("promote birds 2", "jobs retry job_", "tasks discard birds 2", "tasks continue birds 2"):
        assert f"perennial {command}" in said[2]
    assert client.versions.retrieve("birds", 2).status == "held"


def test_the_hour_downloads_and_predicts(hour: Any) -> None:
    said, _, folder = hour
    assert zipfile.ZipFile(folder / "birds.zip").testzip() is None
    rows = [line.split("\t") for line in said[4].splitlines() if line.startswith(("bird.png", "owl.jpg"))]
    assert [len(row) for row in rows] == [4, 4], "three labels each"


def test_the_rollback_names_what_it_costs_and_nothing_is_left_to_settle(hour: Any) -> None:
    said, client, _ = hour
    assert "production of birds is at version 1." in said[5]
    assert "Version 1 was not taught task 2" in said[5]
    seen = client.models.retrieve("birds")
    assert (seen.attention, seen.production_follows) == ([], True)
    assert client.versions.retrieve("birds", "production").tasks == [1, 2]


def test_the_program_of_the_readme_makes_a_version_of_a_folder_of_photos(
    hour: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, folder = hour
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) == 5
    photos = zipfile.ZipFile(folder / "week-31.zip")
    for name in photos.namelist():
        file = tmp_path / "photos" / name.partition("/")[2]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(photos.read(name))
    own = environment(tmp_path / "own") | {
        "PERENNIAL_URL": client.connection.url,
        "PERENNIAL_API_KEY": str(client.connection.key),
    }
    program = program.replace('"birds"', '"from-photos"')
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        check=True,
    )
    assert hashlib.sha256((tmp_path / "birds.zip").read_bytes()).hexdigest() == done.stdout.strip()
    assert isinstance(client.versions.retrieve("from-photos"), types.Version)
