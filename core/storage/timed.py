"""A store that reports durations and failures of its operations to Prometheus."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from core.errors import PerennialError
from core.storage.objects import STRAY_AFTER_S, ObjectInfo, ObjectStorage
from core.telemetry import STORE_FAILURES, STORE_SECONDS


class TimedStore:
    """Wrapper of an object store that measures the duration of each operation on an object.

    A read is measured until it is open; the rest depends on the speed of its reader.
    """

    def __init__(self, store: ObjectStorage) -> None:
        self.inner = store

    def __repr__(self) -> str:
        # Verified objects are remembered by the store's name, which the wrapper must not change.
        return repr(self.inner)

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        """Store a file in the wrapped store, and measure the duration as `put`."""
        with _measure_store_operation("put"):
            return self.inner.put_file(key, path, move=move)

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes in the wrapped store, and measure the duration as `put`."""
        with _measure_store_operation("put"):
            self.inner.put_bytes(key, data)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Read an object of the wrapped store, and measure the duration as `read` until the object
        is open.
        """
        with _measure_store_operation("read"):
            return self.inner.read(key, offset, length)

    def stat(self, key: str) -> ObjectInfo | None:
        """Look up an object of the wrapped store, and measure the duration as `stat`."""
        with _measure_store_operation("stat"):
            return self.inner.stat(key)

    def delete(self, key: str) -> None:
        """Delete an object of the wrapped store, and measure the duration as `delete`."""
        with _measure_store_operation("delete"):
            self.inner.delete(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List objects of the wrapped store, not measured because it goes on while its reader
        works.
        """
        return self.inner.list(prefix)

    def get_local_path(self, key: str) -> Path | None:
        """Return an object's file in the wrapped store, not measured."""
        return self.inner.get_local_path(key)

    def make_download_url(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        """Return a download URL of the wrapped store, not measured because no server is contacted."""
        return self.inner.make_download_url(key, seconds, headers)

    def check_store_usable(self) -> None:
        """Check that the wrapped store can be used, and measure the duration as `check`."""
        with _measure_store_operation("check"):
            self.inner.check_store_usable()

    def create_folder_or_bucket(self) -> None:
        """Create the wrapped store's folder or bucket, not measured."""
        self.inner.create_folder_or_bucket()

    def remove_incomplete_objects(self, older_s: float = STRAY_AFTER_S) -> None:
        """Remove incomplete objects of the wrapped store, not measured."""
        self.inner.remove_incomplete_objects(older_s)


@contextmanager
def _measure_store_operation(operation: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    # Other errors are mistakes in the code, and no failures of the store.
    except PerennialError as error:
        STORE_FAILURES.labels(operation, error.code).inc()
        raise
    finally:
        STORE_SECONDS.labels(operation).observe(time.perf_counter() - begin)
