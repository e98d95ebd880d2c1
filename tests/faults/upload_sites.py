"""API processes that take uploads, and what must be true of what they stored: for tests that cut
and kill.
"""

import hashlib
import io
import random
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
from archives import build_archive
from running_site import API, MODEL, Site, run_site
from sqlalchemy import func, select

from core.database.session import Database
from core.database.tables import StoredUploadPiece, Upload
from core.failpoints import POINTS
from core.retention import retention
from core.storage import open_object_store
from core.uploads import chunks
from tools import service

MB = 1 << 20
TASKS = "/v1/models/birds/tasks"
KILLED_AT = [point for point in POINTS if point.startswith("upload-")]


def build_large_archive(size: int) -> bytes:
    """Build a batch of a few images, and a file of `size` bytes of noise that is none."""
    out = io.BytesIO()
    _write_archive(out, size)
    return out.getvalue()


def write_large_archive(path: Path, size: int) -> str:
    """Write a large archive to a file, and return its sha256."""
    with path.open("w+b") as file:
        _write_archive(file, size)
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_archive(out: BinaryIO, size: int) -> None:
    out.write(build_archive(size, per_class=4))  # of each size another batch
    draw = random.Random(size)
    with (
        zipfile.ZipFile(out, "a") as archived,
        archived.open("notes.bin", "w", force_zip64=True) as file,
    ):
        for begin in range(0, size, MB):
            file.write(draw.randbytes(min(MB, size - begin)))


@contextmanager
def run_apis(
    folder: Path, size: str, environment: dict[str, str], count: int = 1
) -> Iterator[list[Site]]:
    """Run API processes over one database and one store, and create a model.
    Each process has a data directory of its own.
    """
    with ExitStack() as stack:
        first = stack.enter_context(run_site(folder / "0", size, environment))
        sites, key = [first], first.prepare()
        for number in range(1, count):
            other = stack.enter_context(run_site(folder / str(number), size, environment))
            other.points.mkdir(parents=True)
            other.data(API).mkdir()
            service.link_shared_test_catalogue(other.data(API))
            sites.append(other)
        for each in sites:
            (each.folder / "key").write_text(key)
            each.start(API)
        for each in sites:
            wait_until_true(lambda each=each: _is_ready(each), each)
        with open_admin_client(first) as client:
            assert client.post("/v1/models", json={**MODEL, "name": "birds"}).status_code == 201
        yield sites


def wait_until_true(condition: Callable[[], bool], running: Site) -> None:
    """Wait for `condition`, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, (running.folder / f"{API}.log").read_text()[-3000:]
        time.sleep(0.02)


def _is_ready(running: Site) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{running.url}/readyz", timeout=5).status_code == 200
    return False


def read_admin_key(running: Site) -> str:
    """Return the admin's key."""
    return (running.folder / "key").read_text()


def open_admin_client(running: Site) -> httpx2.Client:
    """Make a client that sends requests as they are written, with the admin's key."""
    headers = {"Authorization": f"Bearer {read_admin_key(running)}"}
    return httpx2.Client(base_url=running.url, headers=headers, timeout=60)


def submit_upload(client: httpx2.Client, where: str, sha256: str) -> None:
    """Make a batch of the upload, and check that it has the file's digest."""
    answer = client.post(
        TASKS, json={"upload": where.rpartition("/")[2]}, headers={"Idempotency-Key": where}
    )
    assert answer.status_code in (200, 202), answer.text  # 200: an earlier test has sent the same
    assert answer.json()["task"]["sha256"] == sha256


def check_stored_pieces(running: Site) -> int:
    """Check that no row says more than the store has, piece for piece.
    Return how many pieces nothing names.
    """
    settings = running.settings()
    db, store = Database(settings.resolved_database_url), open_object_store(settings)
    try:
        there = {info.key: info.size for info in store.list(chunks.PREFIX)}
        with db.read() as session:
            for upload in session.scalars(select(Upload)):
                pieces = select(func.sum(StoredUploadPiece.bytes)).where(
                    StoredUploadPiece.upload_id == upload.id
                )
                assert upload.offset == (session.scalar(pieces) or 0) <= upload.length
            named = {chunk.key: chunk.bytes for chunk in session.scalars(select(StoredUploadPiece))}
        assert {key: there.get(key) for key in named} == named
        return len(there) - len(named)
    finally:
        db.close()


def check_nothing_left(running: Site) -> None:
    """Check that no upload is open, and that the sweep of orphaned pieces leaves none."""
    settings = running.settings()
    db, store = Database(settings.resolved_database_url), open_object_store(settings)
    try:
        retention.delete_unreferenced_objects(
            db, store, chunks.PREFIX, chunks.find_referenced_upload_piece_keys, grace_days=0.0
        )
        assert list(store.list(chunks.PREFIX)) == []
        with db.read() as session:
            assert session.scalar(select(func.count()).select_from(Upload)) == 0
    finally:
        db.close()


@contextmanager
def revive_api(running: Site) -> Iterator[None]:
    """Check (`check_stored`) and start again what dies, for as long as the block lasts."""
    over, wrong = threading.Event(), list[BaseException]()

    def revive_stopped_api() -> None:
        while not over.wait(0.1):
            if running.processes[API].poll() is not None:
                try:
                    check_stored_pieces(running)
                except AssertionError as error:
                    wrong.append(error)
                running.revive()

    watcher = threading.Thread(target=revive_stopped_api)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert wrong == []


def make_s3_settings(s3: Any, prefix: str) -> dict[str, str]:
    """Return the settings of a service over an S3 server."""
    return {**s3.environment(), "PERENNIAL_STORE_URL": s3.url(s3.bucket, prefix)}
