"""A reader and an export format are a file and its line each, as `docs/howto/` says.

Both examples are in a copy of the sources, and the service and the client that run there are used.
"""

import io
import os
import re
import subprocess
import sys
import zipfile
from filecmp import dircmp
from pathlib import Path

import pytest
from safetensors.numpy import load

from tests.e2e import small
from tests.e2e.extended_sources import ROOT, SOURCES
from tests.rest import Rest

pytestmark = pytest.mark.slow

CPIO = {"Content-Type": "application/x-cpio"}


@pytest.fixture(scope="module")
def copy(extended_code: Path) -> Path:
    """The sources of the service and of its client, and what is added to them."""
    return extended_code


@pytest.fixture(scope="module")
def client(extended: Rest) -> Rest:
    """A client of the service that runs the copy."""
    return extended


@pytest.fixture(scope="module")
def learned(client: Rest) -> str:
    """A model that learned a batch that was sent as cpio."""
    small.create_small_model(client, "birds", "finetune", recipe={"epochs": 4})
    answer = client.call(
        "POST", "/v1/models/birds/tasks", content=pack_week_as_cpio(0), headers=CPIO
    ).json()
    end = client.wait(answer["job"]["id"])
    assert end.state == "succeeded", end
    return "birds"


def pack_week_as_cpio(week: int) -> bytes:
    """Return the batch of a week as cpio."""
    with zipfile.ZipFile(io.BytesIO(small.WEEKS[week])) as archive:
        return build_cpio({name: archive.read(name) for name in archive.namelist()})


def build_cpio(files: dict[str, bytes]) -> bytes:
    """Build an archive in the portable form, as `find . -type f | cpio -o -H newc` writes it."""
    body = b""
    for name, data in {**files, "TRAILER!!!": b""}.items():
        fields = [0, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name.encode()) + 1, 0]
        body += b"070701" + b"".join(b"%08x" % value for value in fields) + name.encode() + b"\0"
        body += b"\0" * (-len(body) % 4) + data
        body += b"\0" * (-len(body) % 4)
    return body


def test_each_is_one_new_file_and_its_line_in_one_list(copy: Path) -> None:
    new, changed = [], []
    for name in SOURCES:
        pairs = [(Path(name), dircmp(ROOT / name, copy / name))]
        while pairs:
            at, pair = pairs.pop()
            new += [str(at / one) for one in pair.right_only]
            changed += [str(at / one) for one in pair.diff_files]
            pairs += [(at / one, below) for one, below in pair.subdirs.items()]
    assert sorted(new) == [
        "core/export/formats/weights.py",
        "core/ingest/readers/cpio.py",
        "core/learning/problems/digit_sums.py",
    ]
    changed.remove("client/perennial/_formats.py")  # a program has written it
    added = {name: count_lines(copy / name) - count_lines(ROOT / name) for name in changed}
    assert added == {
        "core/export/registry.py": 2,
        "core/ingest/readers/registry.py": 2,
        "core/learning/problems/registry.py": 1,
    }, "its line, and its import where it has one of its own"


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_a_batch_in_the_new_format_is_learned(client: Rest, learned: str) -> None:
    task = client.get(f"/v1/models/{learned}/tasks/1")
    assert task["classes"] == {"0": 32, "1": 32}
    matrix = client.get(f"/v1/models/{learned}/metrics")["accuracy_matrix"]
    assert matrix[1][0] > 0.7


PROGRAM = """
from perennial import Perennial
with Perennial() as client:
    print(client.submit("birds", "b.cpio", name="b").task.number)
"""


@pytest.mark.parametrize(
    ("command", "week"),
    [
        # what a shell runs sends by the same function
        pytest.param(["-c", PROGRAM], 2, marks=pytest.mark.campaign, id="from Python"),
        pytest.param(
            ["-m", "perennial", "submit", "--detach", "birds", "b.cpio"], 1, id="from a shell"
        ),
    ],
)
def test_the_client_sends_the_new_format(
    client: Rest, copy: Path, learned: str, tmp_path: Path, command: list[str], week: int
) -> None:
    (tmp_path / "b.cpio").write_bytes(pack_week_as_cpio(week))
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(copy / "client"),
        "PERENNIAL_URL": str(client.http.base_url),
        "PERENNIAL_API_KEY": client.http.headers["Authorization"].removeprefix("Bearer "),
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    digits = {str(2 * week), str(2 * week + 1)}
    tasks = client.items(f"/v1/models/{learned}/tasks")
    assert [one["name"] for one in tasks if one["classes"].keys() == digits] == ["b"]


def test_the_page_offers_the_new_format(client: Rest, learned: str) -> None:
    page = client.http.get(f"/ui/models/{learned}/submit").text
    accepted = re.search(r'accept="([^"]*)"', page)
    assert accepted and {"application/x-cpio", ".cpio"} <= set(accepted[1].split(","))
    assert "A zip, tar, tar.gz, npz or cpio with a folder for each class" in page
    assert ".cpio" in page.split('data-endings="')[1].split('"')[0].split(",")


def test_an_attack_in_the_new_format_is_refused(client: Rest, learned: str) -> None:
    answer = client.http.post(
        f"/v1/models/{learned}/tasks", content=build_cpio({"cat/../../a.png": b"x"}), headers=CPIO
    )
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (
        422,
        "archive-hostile",
    )


def test_the_service_says_what_it_takes_and_gives_now(client: Rest, learned: str) -> None:
    paths = client.http.get("/openapi.json").json()["paths"]
    assert (
        "application/x-cpio" in paths["/v1/models/{model}/tasks"]["post"]["requestBody"]["content"]
    )
    download = paths["/v1/models/{model}/versions/{version}/download"]["get"]
    assert "application/safetensors" in download["responses"]["200"]["content"]
    assert any("`weights`" in one.get("description", "") for one in download["parameters"])
    refused = client.http.post(
        f"/v1/models/{learned}/tasks", content=b"x", headers={"Content-Type": "x/y"}
    )
    assert refused.status_code == 415 and "application/x-cpio" in refused.json()["detail"]


def test_a_version_is_downloaded_in_the_new_format_twice_alike(client: Rest, learned: str) -> None:
    path = f"/v1/models/{learned}/versions/1/download"
    first, again = (client.call("GET", f"{path}?format=weights") for _ in range(2))
    assert first.headers["Content-Type"] == "application/safetensors"
    assert first.headers["Content-Disposition"] == 'attachment; filename="birds-v1.safetensors"'
    assert first.content == again.content and first.headers["ETag"] == again.headers["ETag"]
    with zipfile.ZipFile(io.BytesIO(client.call("GET", path).content)) as archive:
        assert archive.read("model.safetensors") == first.content
    assert load(first.content)["head.weight"].shape == (2, 16)
