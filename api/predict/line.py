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
        self.key_requests: Counter[str] = Counter()
        self.key_bytes: Counter[str] = Counter()
        """The same of keys of scope predict, beside those of their owners."""

    def place(self, owner: str, key: str | None = None) -> "Place":
        """A place for a request, to be taken before its body is read and left when its answer has gone.

        Args:
            key: of scope predict, by which it came: anybody may have it, so it leaves half of all to its owner.

        Raises:
            TooManyRequests: the owner, or the key, has as many as one may.
            Unavailable: there are as many as there may be.
        """
        own, most = self.requests[owner], self._settings.predict_owner_requests
        of_key, most_of_key = 0 if key is None else self.key_requests[key], _half(most)
        if of_key >= most_of_key:
            raise TooManyRequests(
                f"This key has {of_key} predictions under way, as many as a key of scope predict may: wait for an"
                " answer, or send several images in one request.",
                retry_after_s=RETRY_S,
            )
        if own >= most:
            raise TooManyRequests(
                f"You have {own} predictions under way, as many as an owner may: wait for an answer, or send several"
                " images in one request.",
                retry_after_s=RETRY_S,
            )
        if self.requests.total() >= self._settings.predict_requests:
            raise _full()
        self.requests[owner] += 1
        if key is not None:
            self.key_requests[key] += 1
        return Place(self, owner, key)

    def add(self, owner: str, key: str | None, count: int) -> None:
        """Count bytes of an owner's, and of a key's. Raises TooManyRequests, Unavailable."""
        own, most = self.bytes[owner], self._settings.predict_owner_bytes
        of_key, most_of_key = 0 if key is None else self.key_bytes[key], _half(most)
        if key is not None and of_key + count > most_of_key:
            raise TooManyRequests(
                f"The predictions under way by this key hold {of_key} bytes of images and answers, and a key of scope"
                f" predict may have {most_of_key}: wait for an answer, or send smaller images.",
                retry_after_s=RETRY_S,
            )
        if own + count > most:
            raise TooManyRequests(
                f"Your predictions under way hold {own} bytes of images and answers, and an owner may have {most}:"
                " wait for an answer, or send smaller images.",
                retry_after_s=RETRY_S,
            )
        if self.bytes.total() + count > self._settings.predict_bytes:
            raise _full()
        self.bytes[owner] += count
        if key is not None:
            self.key_bytes[key] += count

    def remove(self, owner: str, key: str | None, requests: int, count: int) -> None:
        """Give back places and bytes of an owner's, and of a key's."""
        _take_off(self.requests, owner, requests)
        _take_off(self.bytes, owner, count)
        if key is not None:
            _take_off(self.key_requests, key, requests)
            _take_off(self.key_bytes, key, count)


class Place:
    """One request's place. `leave` may be called more than once."""

    def __init__(self, line: PredictLine, owner: str, key: str | None = None) -> None:
        self.owner = owner
        self.key = key
        self._line: PredictLine | None = line
        self._bytes = 0

    def take(self, count: int) -> None:
        """Keep so many more bytes. Raises TooManyRequests, Unavailable."""
        assert self._line is not None
        self._line.add(self.owner, self.key, count)
        self._bytes += count

    def exchange(self, count: int) -> None:
        """Keep so many bytes, the answer's, in place of all so far. Raises TooManyRequests, Unavailable."""
        assert self._line is not None
        self._line.remove(self.owner, self.key, 0, self._bytes)
        self._bytes = 0
        self.take(count)

    def leave(self) -> None:
        """The request is over."""
        line, self._line = self._line, None
        if line is not None:
            line.remove(self.owner, self.key, 1, self._bytes)


def most_bytes(settings: Settings, key: str | None) -> int:
    """Bytes that all predictions under way of an owner, or by a key of scope predict, may hold."""
    return settings.predict_owner_bytes if key is None else _half(settings.predict_owner_bytes)


def _half(most: int) -> int:
    return max(1, most // 2)


def _take_off(held: Counter[str], name: str, count: int) -> None:
    held[name] -= count
    if not held[name]:
        del held[name]


def _full() -> Unavailable:
    return Unavailable("Too many predictions are under way; try again shortly.", retry_after_s=RETRY_S)
