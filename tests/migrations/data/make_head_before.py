"""Make `head_before_0.1.0.*`: data as the last commit with the former migrations leaves it.

`DIR` is a checkout of that commit, bbaca810, and `SERVER` a PostgreSQL server on which databases
may be created; `pg_dump` must be on the path:

    python -m tests.migrations.data.make_head_before --code DIR --server SERVER

The service of `DIR` runs once on SQLite and once on PostgreSQL. Each run leaves a dump of the
database (`.sql`) and an archive of the data directory without the database (`.tar.gz`). The archive
has the store and the keys, which open nothing else.
"""

import argparse
import os
import sqlite3
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import URL, make_url

from tests.e2e import small
from tests.rest import Rest
from tools import service

HERE = Path(__file__).parent
NAME = "head_before_0.1.0"
LAST_STEP = "0035_analytic_offsets.py"
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_DEVICE": "cpu",
    "PERENNIAL_SNAPSHOT_S": "0.2",
    "PERENNIAL_CHORES_S": "1",
    "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
}


def main() -> None:
    """Make both files for both databases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--server", required=True)
    given = parser.parse_args()
    if not (given.code / "migrations" / "versions" / LAST_STEP).exists():
        raise SystemExit("--code is to be a checkout of bbaca810.")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "sqlite"
        _fill_database(data, given.code, "")
        dump_sqlite(data / "perennial.db", HERE / f"{NAME}.sqlite.sql")
        pack_data_folder(data, HERE / f"{NAME}.sqlite.tar.gz")
    with tempfile.TemporaryDirectory() as folder, _create_database(given.server) as url:
        data = Path(folder) / "postgresql"
        _fill_database(data, given.code, url.render_as_string(hide_password=False))
        dump_postgresql(url, HERE / f"{NAME}.postgresql.sql")
        pack_data_folder(data, HERE / f"{NAME}.postgresql.tar.gz")


def dump_sqlite(database: Path, target: Path) -> None:
    """Write a SQLite database as statements."""
    with closing(sqlite3.connect(database)) as connection:
        target.write_text("\n".join(connection.iterdump()) + "\n", encoding="utf-8")


def dump_postgresql(url: URL, target: Path) -> None:
    """Write a PostgreSQL database as statements that any client can run."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    dump = subprocess.run(
        ["pg_dump", "--inserts", "--no-owner", "--no-privileges", plain],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # Lines with a backslash are commands of psql alone.
    lines = [line for line in dump.splitlines() if line and not line.startswith(("\\", "--"))]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def _create_database(server: str) -> Iterator[URL]:
    url, name = make_url(server), f"perennial_head_before_{os.getpid()}"
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield url.set(database=name)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _fill_database(data: Path, code: Path, url: str) -> None:
    settings = {**SETTINGS, "PERENNIAL_DATABASE_URL": url}
    with service.run_temporary_service(
        data, settings, code=code, inherits_settings=False
    ) as running:
        fill_service(Rest(running.url, running.key))


def fill_service(client: Rest) -> None:
    """Fill the empty service with an object of each kind, and a job in each state."""
    _learn_batches(client)
    _give_access(client)
    _leave_decisions(client)
    _leave_open(client)


def _learn_batches(client: Rest) -> None:
    """Make a model with two versions, a memory, a note and another alias, and a child of it."""
    small.create_small_model(
        client,
        "digits",
        {"name": "er", "buffer": 20},
        description="Of the till",
        tags=["shop", "till"],
    )
    small.learn_batches(client, "digits", *small.WEEKS[:2])
    client.call("PATCH", "/v1/models/digits", json={"answers": {"precision": 0.9}})
    client.call("PATCH", "/v1/models/digits/versions/2", json={"note": "the good one"})
    client.call("PUT", "/v1/models/digits/aliases/canary", json={"version": 1})
    small.create_small_model(client, "child", "finetune", base={"model": "digits", "version": 2})
    small.learn_batches(client, "child", small.WEEKS[2])
    client.models.rebase("digits", {"model": "child", "version": 1})


def _give_access(client: Rest) -> None:
    """Make keys, one of them revoked, and a webhook without a receiver."""
    client.call("POST", "/v1/keys", json={"name": "theirs", "owner": "shop", "scope": "read"})
    expires_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300 * 86_400))
    limits = {"requests_per_s": 5, "images_per_day": 1000, "expires_at": expires_at}
    predict = {"name": "page", "scope": "predict", "model": "digits", "alias": "production"}
    client.call("POST", "/v1/keys", json={**predict, **limits})
    gone = client.call("POST", "/v1/keys", json={"name": "gone", "scope": "write"}).json()
    client.call("DELETE", f"/v1/keys/{gone['id']}")
    webhook = client.webhooks.create(
        "http://127.0.0.1:9/", events=["version.published", "job.failed"]
    )
    client.call("POST", f"/v1/webhooks/{webhook.id}/test")


def _leave_decisions(client: Rest) -> None:
    """Make a version that was rolled back, one that its gate holds, and a failure.

    A batch waits behind the held version.
    """
    small.create_small_model(client, "rolled", "finetune")
    small.learn_batches(client, "rolled", *small.WEEKS[:2])
    client.call(
        "POST", "/v1/models/rolled/aliases/production/rollback", json={"reason": "complaints"}
    )
    small.create_small_model(client, "held", "finetune")
    small.learn_batches(client, "held", small.WEEKS[0])
    client.call("PATCH", "/v1/models/held", json={"gate": {"min_acc": 1.0}})
    assert client.wait(client.submit("held", small.WEEKS[1])).outcome == "held"
    client.submit("held", small.WEEKS[2])
    small.create_small_model(client, "failed", "finetune")
    small.learn_batches(client, "failed", small.WEEKS[0])
    too_fast = {"optimizer": {"lr": 1e30}, "epochs": 2}
    failure = client.wait(client.submit("failed", small.WEEKS[1], recipe=too_fast))
    assert failure.state == "failed", failure


def _leave_open(client: Rest) -> None:
    """Leave a paused job with its snapshot, and an upload from which no batch is made yet."""
    small.create_small_model(client, "paused", {"name": "der++", "buffer": 20})
    small.learn_batches(client, "paused", small.WEEKS[0])
    job = client.submit("paused", small.WEEKS[1], recipe={"epochs": 300}).id
    small.wait_until(lambda: client.get(f"/v1/jobs/{job}/events?type=snapshot")["items"])
    client.call("POST", f"/v1/jobs/{job}/pause")
    small.wait_for_job_condition(client, job, lambda seen: bool(seen["state"] == "paused"))
    tus = {"Tus-Resumable": "1.0.0"}
    length = {"Upload-Length": str(len(small.WEEKS[3]))}
    upload = client.call("POST", "/v1/uploads", headers={**tus, **length})
    piece = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    client.call(
        "PATCH", upload.headers["Location"], content=small.WEEKS[3], headers={**tus, **piece}
    )


def pack_data_folder(data: Path, target: Path) -> None:
    """Pack the store and the keys of a data directory."""
    with tarfile.open(target, "w:gz") as archive:
        for name in ("store", "admin-key", "webhook-key"):
            if (data / name).exists():
                archive.add(data / name, name, filter=_remove_user)


def _remove_user(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
