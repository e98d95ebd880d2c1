"""The first hour of the README, copied and pasted: its commands run in bash against a service, as they stand."""

import io
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import digits, service
from tools.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

README = (Path(__file__).parents[2] / "README.md").read_text()
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
def hour(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Client, Any]:
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
            env={**os.environ, "PERENNIAL_PORT": port},
            capture_output=True,
            text=True,
            timeout=500,
        )
        print(done.stdout[-6000:], done.stderr[-2000:])
        assert done.returncode == 0, done.stderr[-2000:]
        (folder / "said.txt").write_text(done.stdout)
        said = re.split(r"=== block \d+ ===\n", done.stdout)[1:]
        client = Client(running.url, running.key)
        yield said, client, folder


def test_no_request_of_the_first_hour_is_refused(hour: Any) -> None:
    said, _, _ = hour
    refused = [line for text in said for line in text.splitlines() if '"/problems/' in line]
    assert refused == []


def test_the_second_version_is_held_and_the_third_batch_waits_for_it(hour: Any) -> None:
    said, client, _ = hour
    assert "Version 2 is held by its gate: forgetting of earlier tasks is" in said[2]
    assert "version 2 of task 2 is held" in said[2]
    (entry,) = json.loads(said[2][said[2].rindex("\n[") :])
    assert (entry["kind"], entry["task"], len(entry["actions"])) == ("held", 2, 4)
    assert client.get("/v1/models/birds/versions/2")["status"] == "held"


def test_the_hour_downloads_and_predicts(hour: Any) -> None:
    said, _, folder = hour
    assert zipfile.ZipFile(folder / "birds.zip").testzip() is None
    (line,) = [line for line in said[4].splitlines() if '"predictions": ' in line]
    answers = json.loads(line)["predictions"]
    assert [answer["name"] for answer in answers] == ["bird.png", "owl.jpg"]
    assert all(len(answer["probabilities"]) == 3 for answer in answers)


def test_the_rollback_names_what_it_costs_and_nothing_is_left_to_settle(hour: Any) -> None:
    said, client, _ = hour
    rolled = json.loads(said[5].splitlines()[0])
    assert (rolled["version"], rolled["follows"], rolled["line_head"]) == (1, False, 1)
    assert [rolled["lost_tasks"][0][key] for key in ("task", "lost_classes")] == [2, ["2", "3"]]
    assert said[5].rstrip().endswith("[]")
    seen = client.get("/v1/models/birds")
    assert (seen["attention"], seen["production_follows"]) == ([], True)
    assert client.get("/v1/models/birds/versions/production")["tasks"] == [1, 2]
