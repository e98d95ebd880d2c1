"""Damage of what is stored, and how the API answers then; for the attacks of `test_damage` and
`test_bit_flips`.
"""

import os
from typing import Any

from starlette.testclient import TestClient

from core.errors import StoredObjectDamaged
from core.storage import ObjectStorage


def get_store(client: TestClient) -> ObjectStorage:
    found: ObjectStorage = client.app.state.store  # type: ignore[attr-defined]
    return found


def flip_stored_bit(store: ObjectStorage, key: str, at: int = -3) -> bytes:
    """Change one bit of an object and restore its times. Return the sound bytes."""
    sound = b"".join(store.read(key))
    damaged = bytearray(sound)
    damaged[at] ^= 1
    path = store.get_local_path(key)
    if path is None:
        store.put_bytes(key, bytes(damaged))
    else:
        times = path.stat()
        with path.open("r+b") as file:
            file.write(damaged)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return sound


def get_response(client: TestClient, url: str, **headers: str) -> tuple[int, bytes]:
    """Return status and body; 0 and the part that came if the answer broke off."""
    with client.stream("GET", url, headers=headers) as answer:
        body = b""
        try:
            for chunk in answer.iter_bytes():
                body += chunk
        except StoredObjectDamaged:  # the API is in this process
            return 0, body
        if answer.status_code == 200 and len(body) != int(answer.headers["content-length"]):
            return 0, body
        return answer.status_code, body


def is_refused(client: TestClient, answer: tuple[int, bytes]) -> bool:
    """Tell whether the answer is a typed error, or cut off before the end (S3 alone)."""
    status, body = answer
    if status == 0:
        return get_store(client).make_download_url("archives/x", 1, {}) is not None
    return status == 500 and b"store-corrupt" in body


def repair_damage(client: TestClient) -> None:
    """Do what a worker's scrub does within a minute."""
    try:
        from core.upkeep.scrub import Scrubber
    except ImportError:  # the code as it was first
        return
    state: Any = client.app.state  # type: ignore[attr-defined]
    Scrubber(
        state.database, state.store, state.settings, "w", lambda _seconds: False
    ).run_scrub_if_due()
