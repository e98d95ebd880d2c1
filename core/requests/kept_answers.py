"""Answers that take long to make, kept as bytes while the process lives and what they were made of stays the same."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock


@dataclass(frozen=True)
class KeptAnswer:
    """The body of an answer and its strong ETag, with the quotes around it."""

    body: bytes
    tag: str


class KeptAnswers:
    """The answers that were asked for last, found by a digest of all that they were made of.

    A change makes another digest, so that no answer is ever removed for being old: it is not found any more. The digest
    is made anew for each request, after it was checked who asks. For any number of threads.

    Args:
        most: bytes of all bodies together; a larger one is not kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._lock = Lock()
        self._kept: OrderedDict[bytes, KeptAnswer] = OrderedDict()

    def get(self, digest: bytes, make: Callable[[], bytes]) -> KeptAnswer:
        """The answer of that digest; `make` gives its body where it is not kept. Two threads may both make it."""
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return self._kept[digest]
        body = make()
        answer = KeptAnswer(body, f'"{sha256(body).hexdigest()}"')
        with self._lock:
            if digest not in self._kept and len(body) <= self._most:
                self._kept[digest] = answer
                self._bytes += len(body)
            while self._bytes > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest.body)
        return answer
