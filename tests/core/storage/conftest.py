"""The two stores that every test of the contract runs against, and a network that can be cut."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.settings import Settings
from core.storage import Blobs, ObjectStorage, open_object_store


@pytest.fixture(params=["folder", "s3"])
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of an empty, prepared store; on S3 a prefix of its own in the common bucket."""
    if request.param == "folder":
        settings = Settings(data_dir=tmp_path / "data")
    else:
        settings = request.getfixturevalue("s3").settings(
            tmp_path / "data", prefix=f"t/{secrets.token_hex(4)}"
        )
    open_object_store(settings).create_folder_or_bucket()
    return settings


@pytest.fixture
def store(store_settings: Settings) -> ObjectStorage:
    return open_object_store(store_settings)


@pytest.fixture
def blobs(store: ObjectStorage, tmp_path: Path) -> Blobs:
    return Blobs(store, tmp_path / "cache")


class Cutter:
    """A TCP relay that cuts every connection after some bytes of the server's answer."""

    def __init__(self, target: int) -> None:
        self.cuts: list[int] = []
        """Bytes after which the next connections are cut, in turn; afterwards none is."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            limit = self.cuts.pop(0) if self.cuts else None
            threading.Thread(target=self._relay, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._relay, args=(server, client, limit), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        left = limit
        try:
            while data := source.recv(65536):
                if left is not None:
                    data, left = data[:left], left - len(data)
                target.sendall(data)
                if left is not None and left <= 0:
                    break
        except OSError:
            return
        finally:
            for each in (source, target):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


@pytest.fixture
def cutter() -> Iterator[Callable[[int], Cutter]]:
    """Make relays to a port; all are closed after the test."""
    made: list[Cutter] = []

    def make_cutter(port: int) -> Cutter:
        made.append(Cutter(port))
        return made[-1]

    yield make_cutter
    for each in made:
        each.close()
