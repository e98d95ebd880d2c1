"""Makes `before-line.tar.gz`: a data directory as the code left it before models had a line (schema
0007).

Run with that code, whose last commit is 56676f9 (it has no `migrations/versions/0008_line.py`),
from the root of its checkout; nothing else of this repository is needed:

    PYTHONPATH=. python PATH/TO/make_before_line.py PATH/TO/before-line.tar.gz

Each model is one thing that could happen then, made through HTTP with 8×8 digits and a tiny
network. The archive holds database and store; keys are left out, so that the next start makes one.
"""

import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.rest import Rest
from tools import digits, service

IMAGES = 20
"""Of each class."""
SMALL = {
    "architecture": {"name": "mlp", "hidden": [16]},
    "image": {"size": 8, "channels": 1},
    "recipe": {"method": "finetune", "epochs": 1, "batch_size": 8},
}
NEVER = {"min_acc": 1.0}
"""A gate that no version passes which was taught for so short a time."""
BREAKS = {"optimizer": {"lr": 1e30}}
"""A recipe that ends in numbers which are not finite: the job fails."""


def main(target: Path) -> None:
    """Make it."""
    if Path("migrations/versions/0008_line.py").exists():
        raise SystemExit(
            "Run this from a checkout of the code before the change (see the top of this file)."
        )
    batches = [(name, _fewer(archive)) for name, archive in digits.build_archives()]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with service.running(data, {"PERENNIAL_THREADS": "1"}) as running:
            _lives(Rest(running.url, running.key), batches)
        with _api_alone(data) as client:  # what is asked for now waits in the queue
            client.submit("waiting", batches[1][1], name=batches[1][0])
            job = client.get("/v1/models/retrying/tasks/2")["job"]
            client.call("POST", f"/v1/jobs/{job}/retry", json={"recipe": {}})
            client.submit("retrying", batches[2][1], name=batches[2][0])
        _pack(data, target)


def _lives(client: Rest, batches: list[tuple[str, bytes]]) -> None:
    """One model after the other."""

    def learn(model: str, number: int, state: str = "succeeded", **options: Any) -> None:
        name, archive = batches[number - 1]
        end = client.wait(client.submit(model, archive, name=name, **options))
        assert end.state == state, end

    def hold(model: str, number: int) -> None:
        client.models.update(model, gate=NEVER)
        learn(model, number)
        version = client.get(f"/v1/models/{model}/versions/{number}")
        assert version["status"] == "held", version
        client.models.update(model, gate=None)

    def roll_back(model: str) -> None:
        body = {"reason": "customers complain"}
        client.call("POST", f"/v1/models/{model}/aliases/production/rollback", json=body)

    for name in ("rolled", "rolled-and-on"):
        client.models.create(name, **SMALL)
        for number in (1, 2, 3):
            learn(name, number)
        roll_back(name)
    learn("rolled-and-on", 4)
    for name in ("held", "held-and-on", "overruled", "retrying"):
        client.models.create(name, **SMALL)
        learn(name, 1)
        hold(name, 2)
    learn("held-and-on", 3)
    body = {"version": 2, "reason": "good enough for us"}
    client.call("PUT", "/v1/models/overruled/aliases/production", json=body)
    learn("overruled", 3)
    client.models.create("failed", **SMALL)
    learn("failed", 1)
    learn("failed", 2, "failed", recipe=BREAKS)
    learn("failed", 3)
    client.models.create("cancelled", **SMALL)
    learn("cancelled", 1)
    job = client.submit("cancelled", batches[1][1], name=batches[1][0], recipe={"epochs": 5000}).id
    client.jobs.cancel(job)
    assert client.wait(job).state == "cancelled"
    client.models.create("waiting", **SMALL)
    learn("waiting", 1)
    client.models.create("gone", **SMALL)
    learn("gone", 1)
    client.models.delete("gone")
    client.models.create("seasons", "data", **SMALL)
    for _ in range(2):
        learn("seasons", 1)
    client.models.create("child", **SMALL, base={"model": "rolled", "version": 3})
    learn("child", 4)


def _fewer(archive: bytes) -> bytes:
    """An archive with the first images of each class."""
    taken: dict[str, int] = {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w") as target:
        for info in source.infolist():
            label = info.filename.partition("/")[0]
            taken[label] = taken.get(label, 0) + 1
            if taken[label] <= IMAGES:
                target.writestr(info, source.read(info))
    return buffer.getvalue()


@contextmanager
def _api_alone(data: Path) -> Iterator[Rest]:
    """The API on a data directory, without a worker."""
    port = service.free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "api.app:create_app",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(
        command, cwd=service.ROOT, env={**os.environ, "PERENNIAL_DATA_DIR": str(data)}
    )
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + service.START_S
        while time.monotonic() < end:
            try:
                if httpx2.get(f"{url}/readyz", timeout=2).status_code == 200:
                    break
            except httpx2.TransportError:
                time.sleep(0.1)
        yield Rest(url, (data / "admin-key").read_text().strip())
    finally:
        process.terminate()
        process.wait(service.STOP_S)


def _pack(data: Path, target: Path) -> None:
    """Database and store, without keys and copies."""
    with sqlite3.connect(data / "perennial.db", isolation_level=None) as connection:
        connection.execute("DELETE FROM keys")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    connection.close()
    with tarfile.open(target, "w:gz") as archive:
        for name in ("perennial.db", "store"):
            archive.add(data / name, name, filter=_nobodys)
    print(f"{target}: {target.stat().st_size:,} bytes")


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]))
