"""Batches of a bucket: an upload that was cut goes on, and a real service learns them."""

import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub import run_stub
from tus_stub import Tus

from perennial import Perennial
from perennial.cli.main import run_command_line
from perennial.pack import open_batch
from tools import service

sys.path.append(str(Path(__file__).parent / "pack"))

from photo_servers import Bucket, Page, run_photo_server
from sources import make_noise_png

PIECE = 1 << 20


@pytest.fixture
def bucket() -> Iterator[tuple[Bucket, str]]:
    """A bucket, and the address of its server."""
    found = Bucket({})
    with run_photo_server() as server:
        server.answer = found.answer
        yield found, server.url


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
def test_an_upload_of_a_bucket_that_was_cut_is_gone_on_with_by_the_next_run(
    bucket: tuple[Bucket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial._sync.upload.CHUNK_BYTES", PIECE)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (PIECE,))
    held, url = bucket
    held.objects |= {f"a/cat/{n}.png": random.Random(n).randbytes(PIECE) for n in range(24)}

    def interrupt_after_20_pieces(done: int, total: int) -> None:
        if done >= 20 * PIECE:
            raise KeyboardInterrupt

    def open_remote_batch() -> Any:
        return open_batch("s3://birds/a", endpoint=url, anonymous=True)

    tus = Tus()
    with run_stub(tus) as stub:
        with Perennial("k", base_url=stub.url) as client, pytest.raises(KeyboardInterrupt):
            client.submit("birds", open_remote_batch(), progress=interrupt_after_20_pieces)
        held.read.clear()
        with Perennial("k", base_url=stub.url) as client:
            client.submit("birds", open_remote_batch())
    assert tus.made == 1 and len(set(held.read)) == len(held.read) < 8, held.read
    assert bytes(tus.kept) == b"".join(open_remote_batch().read_chunks())


@pytest.mark.slow
def test_a_command_sends_a_bucket_and_says_what_changed_under_way(
    bucket: tuple[Bucket, str],
    running: service.RunningService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)
    held, url = bucket
    for label in ("cat", "dog"):
        held.objects |= {
            f"week 31/{label}/{n}.png": make_noise_png(f"{label}{n}") for n in range(30)
        }
    held.instead["week 31/cat/7.png"] = Page(b"another")
    model = ["--architecture", "mlp", "--image", '{"size": 8, "channels": 3}', "--base", "random"]
    assert (
        run_command_line(["models", "create", "bucket-birds", *model, "--recipe", '{"epochs": 1}'])
        == 0
    )
    options = ["-o", f"endpoint={url}", "-o", "anonymous=true"]
    assert run_command_line(["submit", "bucket-birds", "s3://birds/week 31", *options]) == 0
    said = capsys.readouterr()
    assert "60 images of 2 classes (“cat” 30, “dog” 30)" in said.err
    assert (
        "warning: 1 entry of “s3://birds/week 31” left out as bad: The object “week 31/cat/7.png”"
        in said.err
    )
    with Perennial(running.key, base_url=running.url) as client:
        task = client.tasks.retrieve("bucket-birds", 1)
    assert task.name == "week 31" and [one.path for one in task.report.rejected or ()] == [
        "cat/7.png"
    ]


@pytest.mark.campaign  # tests/core/ingest/test_zip_names.py shows it
@pytest.mark.slow
def test_the_encoding_of_names_in_a_zip_goes_with_a_command(
    running: service.RunningService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)
    with zipfile.ZipFile(tmp_path / "beetles.zip", "w") as archive:
        for number in range(4):
            archive.writestr(
                f"{'abc' if number % 2 else 'xyz'}/{number}.png", make_noise_png(str(number))
            )
    data = (tmp_path / "beetles.zip").read_bytes()
    (tmp_path / "beetles.zip").write_bytes(data.replace(b"abc/", "жук".encode("cp866") + b"/"))
    model = ["--architecture", "mlp", "--image", '{"size": 8, "channels": 3}', "--base", "random"]
    assert run_command_line(["models", "create", "beetles", *model]) == 0
    capsys.readouterr()
    assert (
        run_command_line(["submit", "beetles", "beetles.zip", "-o", "names=cp866", "--check"]) == 0
    )
    said = capsys.readouterr().out
    assert (
        "жук 2" in said
        and "2 names say no encoding and were read as cp866, as the sender said" in said
    )
    assert (
        run_command_line(["submit", "beetles", "beetles.zip", "-o", "names=klingon", "--check"])
        != 0
    )
    assert "is no encoding of names; possible are utf-8, gbk" in capsys.readouterr().err
