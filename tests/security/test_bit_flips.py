"""A bit is flipped in many stored objects of all kinds: all are found, none is given out as valid,
and each heals.
"""

import hashlib
import random
import secrets
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.tables import ExportedDownload, Model, Owner, Task, UploadedBase
from core.ids import new_id
from core.retention import damage
from core.storage import Blobs
from tests.api.routes.conftest import Publish, build_default_parts
from tests.security.damaging import (
    flip_stored_bit,
    get_response,
    get_store,
    is_refused,
    repair_damage,
)

EACH = 4
"""Of bases, training parts and archives each; three times as many versions."""
Known = dict[str, bytes]
"""URL or store key to sound bytes."""


@pytest.fixture(
    params=["folder", pytest.param("s3", marks=[pytest.mark.services("s3"), pytest.mark.campaign])]
)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SIZES = pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.campaign)]
)
"""Times `EACH` objects of a kind, and 25 flips."""


@SIZES
def test_all_bit_flips_are_found_and_none_is_given_out(
    client: TestClient, model: str, publish: Publish, tmp_path: Path, size: int
) -> None:
    files, downloads, kept = fill_store(client, publish, tmp_path, size * EACH)
    store, draw = get_store(client), random.Random(5)
    flipped = sorted({min(kept), *draw.sample(sorted(kept), 25 * size)})  # the first is an archive
    for key in flipped:
        flip_stored_bit(store, key, at=draw.randrange(len(kept[key])))
    wrong = {
        url
        for url, sound in (files | downloads).items()
        if not is_sound_or_refused(client, url, sound)
    }
    assert not wrong, "given out though it is damaged"
    repair_damage(client)
    exports = {Blobs.make_blob_key(hashlib.sha256(data).hexdigest()) for data in downloads.values()}
    assert list_damaged_keys(client) == set(flipped) - exports
    assert not list_still_damaged(client, kept, exports & list_offered_downloads(client)), (
        "it is neither forgotten nor made again"
    )
    assert {key.split("/")[0] for key in list_damaged_keys(client)} == {"archives", "blobs"}
    for url, sound in files.items():
        answer = get_response(client, url)
        key = Blobs.make_blob_key(hashlib.sha256(sound).hexdigest())
        assert answer == (200, sound) if key not in flipped else is_refused(client, answer), url
    repair_blobs(client, kept, flipped, tmp_path)
    assert {url: get_response(client, url) for url in files | downloads} == {
        url: (200, sound) for url, sound in (files | downloads).items()
    }


def is_sound_or_refused(client: TestClient, url: str, sound: bytes) -> bool:
    """Tell whether a download, whole and in part, is sound or refused."""
    middle = len(sound) // 2
    part = get_response(client, url, Range=f"bytes={middle}-{middle + 99}")
    whole = get_response(client, url)
    return (part == (206, sound[middle : middle + 100]) or is_refused(client, part)) and (
        whole == (200, sound) or is_refused(client, whole)
    )


def fill_store(
    client: TestClient, publish: Publish, tmp_path: Path, each: int
) -> tuple[Known, Known, Known]:
    """Store parts and exports of versions, bases, training parts and archives.
    Return files, downloads, and stored objects.
    """
    files: Known = {}
    downloads: Known = {}
    for number in range(1, 3 * each + 1):
        publish("birds", build_default_parts(number))
        version = f"/v1/models/birds/versions/{number}"
        for name in ("backbone.1", "head"):
            files[f"{version}/files/{name}"] = get_response(client, f"{version}/files/{name}")[1]
        if number % 3 == 0:
            downloads[f"{version}/download"] = get_response(client, f"{version}/download")[1]
    kept = {
        Blobs.make_blob_key(hashlib.sha256(data).hexdigest()): data
        for data in [*files.values(), *downloads.values()]
    }
    state: Any = client.app.state  # type: ignore[attr-defined]
    blobs: Blobs = state.blobs
    for number in range(each):
        data = [secrets.token_bytes(3000) for _ in range(3)]
        base, train = (put_blob(blobs, tmp_path, bytes_) for bytes_ in data[:2])
        archive = f"archives/{new_id('tsk')}"
        state.store.put_bytes(archive, data[2])
        _add_rows(state.database, number, base, train, archive, hashlib.sha256(data[2]).hexdigest())
        kept |= dict(
            zip(
                (Blobs.make_blob_key(base), Blobs.make_blob_key(train), archive),
                data,
                strict=True,
            )
        )
    return files, downloads, kept


def put_blob(blobs: Blobs, folder: Path, data: bytes) -> str:
    path = folder / "upload"
    path.write_bytes(data)
    return blobs.put_file(path)[0]


def _add_rows(db: Database, number: int, base: str, train: str, archive: str, sha256: str) -> None:
    with db.write() as session:
        owner = session.query(Owner.id).limit(1).scalar()
        made = {"architecture": {}, "bytes": 3000, "created_at": 0.0}
        session.add(UploadedBase(id=new_id("bas"), owner_id=owner, sha256=base, **made))
        task = session.query(Task).filter_by(number=number + 1).one()
        task.train_sha256, task.archive_key, task.sha256 = train, archive, sha256
        session.query(Model).one().keep_training_data = True


def list_damaged_keys(client: TestClient) -> set[str]:
    with _get_database(client).read() as session:
        return {row.key for row in damage.list_damage_marks(session, 1000)}


def list_offered_downloads(client: TestClient) -> set[str]:
    """Return the downloads that are stored for the next client that requests them."""
    with _get_database(client).read() as session:
        return {Blobs.make_blob_key(sha256) for (sha256,) in session.query(ExportedDownload.sha256)}


def list_still_damaged(client: TestClient, kept: Known, keys: set[str]) -> set[str]:
    """Return the stored objects that are still damaged."""
    store = get_store(client)
    return {key for key in keys if store.stat(key) and b"".join(store.read(key)) != kept[key]}


def _get_database(client: TestClient) -> Database:
    found: Database = client.app.state.database  # type: ignore[attr-defined]
    return found


def repair_blobs(client: TestClient, kept: Known, flipped: list[str], folder: Path) -> None:
    """Repair half of the blobs by a restore, which the scrub notices.
    Repair the other half by sound bytes that come again.
    """
    store = get_store(client)
    blobs: Blobs = client.app.state.blobs  # type: ignore[attr-defined]
    for at, key in enumerate(sorted(set(flipped) & list_damaged_keys(client))):
        if at % 2 or key.startswith("archives/"):
            store.put_bytes(key, kept[key])
        else:
            put_blob(blobs, folder, kept[key])
            assert key not in list_damaged_keys(client)
    repair_damage(client)
    assert list_damaged_keys(client) == set()


@SIZES
def test_the_scrub_alone_finds_them_all(
    client: TestClient, model: str, publish: Publish, tmp_path: Path, size: int
) -> None:
    _, downloads, kept = fill_store(client, publish, tmp_path, size * EACH)
    exports = {Blobs.make_blob_key(hashlib.sha256(data).hexdigest()) for data in downloads.values()}
    draw = random.Random(6)
    flipped = {min(exports), *draw.sample(sorted(kept), 25 * size)}
    for key in sorted(flipped):
        flip_stored_bit(get_store(client), key, at=draw.randrange(len(kept[key])))
    repair_damage(client)
    assert list_damaged_keys(client) == flipped - exports
    assert not list_offered_downloads(client) & flipped and flipped & exports
    assert all(get_store(client).stat(key) is None for key in flipped & exports)
