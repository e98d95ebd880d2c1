"""Station 1 of predict: the requests that an API process has under way, with the bytes that each keeps in memory.

Bytes count when they have come, not when they are announced, and from then on until the answer has been taken. An
owner has far fewer places and bytes than there are, so that what one owner does refuses no other.
"""

from collections import Counter

from core.errors import TooManyRequests, Unavailable
from core.settings import Settings

RETRY_S = 1


class PredictLine:
    """All places. For one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def place(self, owner: str) -> "Place":
        """A place for a request, to be taken before its body is read and left when its answer has gone.

        Raises:
            TooManyRequests: the owner has as many as one may.
            Unavailable: there are as many as there may be.
        """
        own, most = self.requests[owner], self._settings.predict_owner_requests
        if own >= most:
            raise TooManyRequests(
                f"You have {own} predictions under way, as many as an owner may: wait for an answer, or send several"
                " images in one request.",
                retry_after_s=RETRY_S,
            )
        if self.requests.total() >= self._settings.predict_requests:
            raise _full()
        self.requests[owner] += 1
        return Place(self, owner)

    def add(self, owner: str, count: int) -> None:
        """Count bytes of an owner's. Raises TooManyRequests, Unavailable."""
        own, most = self.bytes[owner], self._settings.predict_owner_bytes
        if own + count > most:
            raise TooManyRequests(
                f"Your predictions under way hold {own} bytes of images and answers, and an owner may have {most}:"
                " wait for an answer, or send smaller images.",
                retry_after_s=RETRY_S,
            )
        if self.bytes.total() + count > self._settings.predict_bytes:
            raise _full()
        self.bytes[owner] += count

    def remove(self, owner: str, requests: int, count: int) -> None:
        """Give back places and bytes of an owner's."""
        for held, gone in ((self.requests, requests), (self.bytes, count)):
            held[owner] -= gone
            if not held[owner]:
                del held[owner]


class Place:
    """One request's place. `leave` may be called more than once."""

    def __init__(self, line: PredictLine, owner: str) -> None:
        self.owner = owner
        self._line: PredictLine | None = line
        self._bytes = 0

    def take(self, count: int) -> None:
        """Keep so many more bytes. Raises TooManyRequests, Unavailable."""
        assert self._line is not None
        self._line.add(self.owner, count)
        self._bytes += count

    def exchange(self, count: int) -> None:
        """Keep so many bytes, the answer's, in place of all so far. Raises TooManyRequests, Unavailable."""
        assert self._line is not None
        self._line.remove(self.owner, 0, self._bytes)
        self._bytes = 0
        self.take(count)

    def leave(self) -> None:
        """The request is over."""
        line, self._line = self._line, None
        if line is not None:
            line.remove(self.owner, 1, self._bytes)


def _full() -> Unavailable:
    return Unavailable("Too many predictions are under way; try again shortly.", retry_after_s=RETRY_S)
