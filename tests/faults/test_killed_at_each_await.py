"""The API is killed at each await of a piece of an upload: what it then says is stored, and it goes
on there.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.keys import keys
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import open_object_store
from core.uploads import complete_uploads
from tools import service

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800)]
PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
DATA = bytes(range(256)) * 3
FIRST = 400
PATIENCE_S = 60.0
MOST = 400


class KilledApi:
    """The program beside this file, on a data directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data_dir=folder, port=service.find_free_port())
        db = Database(self.settings.resolved_database_url)
        upgrade_schema(db)
        self.child = 0
        self.key = str(keys.ensure_admin_key_and_write_file(db, folder))
        db.close()
        open_object_store(self.settings).create_folder_or_bucket()
        service.link_shared_test_catalogue(folder)
        program = Path(__file__).with_name("killed_api.py")
        arguments = [sys.executable, program, folder, str(self.settings.port)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})  # fmt: skip
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{self.settings.port}", timeout=PATIENCE_S,
                                  headers={"Authorization": f"Bearer {self.key}"})  # fmt: skip

    def start(self, number: int) -> int:
        """Serve, and die at an await; the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self.child = pid = int(self.process.stdout.readline().split()[1])
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.http.get("/healthz").status_code == 200:
                    return pid
            except httpx2.TransportError:
                assert time.monotonic() < until
                time.sleep(0.02)

    def gone(self) -> str:
        assert self.process.stdout is not None
        self.child = 0
        return self.process.stdout.readline().strip()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KilledApi]:
    made = KilledApi(tmp_path)
    yield made
    if made.child:
        with contextlib.suppress(ProcessLookupError):
            os.kill(made.child, signal.SIGKILL)
    made.process.kill()
    made.process.wait()


def send_piece_in_two(api: KilledApi, where: str, at: int, data: bytes) -> int | None:
    """Send a piece in two parts, and return its status; None if the process died."""

    def yield_halves() -> Iterator[bytes]:
        yield data[: len(data) // 2]
        yield data[len(data) // 2 :]

    headers = {**PIECE, "Upload-Offset": str(at), "Content-Length": str(len(data))}
    try:
        return api.http.patch(where, content=yield_halves(), headers=headers).status_code
    except httpx2.TransportError:
        return None


def send_missing_bytes(api: KilledApi, where: str, at: int) -> None:
    """Send the bytes that are missing, once the lease of the dead request has ended."""
    until = time.monotonic() + PATIENCE_S
    while (status := send_piece_in_two(api, where, at, DATA[at:])) == 423:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert status == 204


def read_upload(api: KilledApi, upload: str) -> bytes:
    db = Database(api.settings.resolved_database_url)
    actor: Any = Actor("own_any", None, "admin")
    try:
        whole = complete_uploads.require_complete_upload(db, actor, upload)
        return b"".join(
            complete_uploads.read_upload_bytes(db, open_object_store(api.settings), actor, whole)
        )
    finally:
        db.close()


def test_an_upload_outlives_the_death_of_its_process_at_each_await(api: KilledApi) -> None:
    ends: list[int] = []
    for number in range(MOST):
        api.start(number)
        begun = api.http.post("/v1/uploads", headers={"Upload-Length": str(len(DATA))})
        where = begun.headers["location"]
        status = send_piece_in_two(api, where, 0, DATA[:FIRST])
        if status == 204:  # it has fewer awaits: all of them were tried
            break
        assert status is None and api.gone() == "gone -9"
        pid = api.start(10**6)
        at = int(api.http.head(where).headers["upload-offset"])
        ends.append(at)
        assert at in (0, FIRST)
        send_missing_bytes(api, where, at)
        assert read_upload(api, where.rpartition("/")[2]) == DATA
        assert list((api.settings.data_dir / "spool").iterdir()) == []
        assert api.http.delete(where).status_code == 204
        os.kill(pid, signal.SIGKILL)
        api.gone()
    else:
        pytest.fail(f"a piece has more than {MOST} awaits")
    print(
        f"{len(ends)} awaits: {ends.count(0)} ends before the piece was kept, {ends.count(FIRST)} "
        f"after"
    )
    assert len(ends) > 10 and ends == sorted(ends) and FIRST in ends
