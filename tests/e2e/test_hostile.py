"""Hostile and merely untidy archives through HTTP: a typed 4xx that names the entry, and nothing kept."""

import io
import zlib
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tests.core.ingest import hostile_corpus
from tests.e2e import small
from tests.rest import Rest
from tools import service

MB = 1 << 20
ATTACKS = hostile_corpus.hostile()


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def model(client: Rest) -> None:
    small.create(client, "target", "finetune")


def stored(running: service.Service) -> set[Path]:
    """Find the files of store and spool that are no notes of sweeps."""
    folders = (running.data_dir / "store", running.data_dir / "spool")
    files = {p for folder in folders for p in folder.rglob("*") if p.is_file()}
    return {p for p in files if "sweeps" not in p.parts}


def api_process(running: service.Service) -> psutil.Process:
    for process in psutil.Process(running.process.pid).children(recursive=True):
        if any("api.app" in word for word in process.cmdline()):
            return process
    raise AssertionError("no API process")


def test_every_attack_is_answered_by_a_typed_4xx_and_leaves_nothing_behind(
    running: service.Service, client: Rest
) -> None:
    before, api = stored(running), api_process(running)
    rss = api.memory_info().rss
    for attack in ATTACKS:
        answer = client.http.post(
            "/v1/models/target/tasks",
            content=attack.build(),
            headers={"Content-Type": attack.content_type or "application/octet-stream"},
        )
        problem = answer.json()
        assert 400 <= answer.status_code < 500, (attack.name, problem)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["type"].removeprefix("/problems/") in attack.code.split("|"), (attack.name, problem)
        assert any(text in problem["detail"] for text in attack.entry.split("|")), (attack.name, problem)
    assert stored(running) <= before
    assert client.get("/v1/models/target/tasks")["items"] == []
    assert api.memory_info().rss - rss < 256 * MB


def test_a_wrong_content_type_and_an_empty_body_are_typed_errors(client: Rest) -> None:
    for body, kind, status, code in (
        (b"", "application/zip", 422, "archive-invalid"),
        (hostile_corpus.honest_zip(hostile_corpus.pictures(2)), "application/gzip", 415, "unsupported-type"),
        (b"hello", "text/plain", 415, "unsupported-type"),
    ):
        answer = client.http.post("/v1/models/target/tasks", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{code}"), answer.text


def test_images_that_cannot_be_decoded_are_rows_of_the_report_and_the_rest_is_learned(client: Rest) -> None:
    names = {f"{label}/{i}.png": picture(i) for label in ("cat", "dog") for i in range(30)}
    jpeg = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(jpeg, "JPEG")
    names["cat/truncated.jpg"] = jpeg.getvalue()[: len(jpeg.getvalue()) // 2]
    names["dog/huge.png"] = huge_png(30_000)
    job = client.submit("target", small.pack(names)).id
    assert client.wait(job).state == "succeeded"
    task = client.get("/v1/models/target/tasks/1")
    assert {row["path"] for row in task["report"]["rejected"]} == {"cat/truncated.jpg", "dog/huge.png"}
    assert task["n_train"] + task["n_held_out"] == 60


def test_a_zip_of_a_file_manager_is_accepted(client: Rest) -> None:
    names = {f"my photos/{label}/{i}.png": picture(i) for label in ("cat", "dog") for i in range(100, 104)}
    names |= {
        "__MACOSX/my photos/cat/._100.png": b"\0\5\x16\7",
        "my photos/.DS_Store": b"\0\0\0\1Bud1",
        "my photos/cat/Thumbs.db": b"x",
    }
    answer = client.call(
        "POST",
        "/v1/models/target/tasks?validate=only",
        content=small.pack(names),
        headers={"Content-Type": "application/zip"},
    ).json()
    assert answer["classes"] == {"cat": 4, "dog": 4}
    assert (answer["valid"], answer["ignored"]) == (True, 3)


def picture(number: int) -> bytes:
    png = io.BytesIO()
    Image.new("RGB", (32, 32), (number * 37 % 256, number * 91 % 256, number % 256)).save(png, "PNG")
    return png.getvalue()


def huge_png(side: int) -> bytes:
    """A valid one-bit PNG of side × side pixels: some 100 kB that unpack to 900 million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    packer, rows = zlib.compressobj(9), b"\0" * (side // 8 + 1) * 100
    packed = b"".join(packer.compress(rows) for _ in range(side // 100)) + packer.flush()
    header = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
