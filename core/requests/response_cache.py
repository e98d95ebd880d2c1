"""In-process cache of slow responses, keyed by a digest of everything that they are made from."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock


@dataclass(frozen=True)
class CachedResponse:
    """An encoded response: its body and its strong ETag, including the quotes."""

    body: bytes
    tag: str


class ResponseCache:
    """Cache of recent encoded responses, keyed by a digest of everything that they are made from.

    A change of the data gives another digest, so entries never have to be invalidated. The digest
    is computed for each request, after the caller's rights have been checked. Safe for any number
    of threads.

    Args:
        most: maximum size of all bodies together, in bytes; a larger body is not cached.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._lock = Lock()
        self._kept: OrderedDict[bytes, CachedResponse] = OrderedDict()

    def get_or_build_response(self, digest: bytes, make: Callable[[], bytes]) -> CachedResponse:
        """Return the cached response for a digest, or build it with `make`.

        Two threads may both call `make`, since the lock is not held meanwhile.
        """
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return self._kept[digest]
        body = make()
        response = CachedResponse(body, f'"{sha256(body).hexdigest()}"')
        with self._lock:
            # Another thread may have stored it meanwhile, and bytes must be counted once.
            if digest not in self._kept and len(body) <= self._most:
                self._kept[digest] = response
                self._bytes += len(body)
            while self._bytes > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest.body)
        return response
