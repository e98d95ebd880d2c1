"""Stage 1 of predict: the requests in progress in an API process, and the bytes that each holds.

Bytes count from their arrival, not from their announcement, until the response is delivered. An
owner may have only a small part of all places and bytes, so that no owner can crowd out the others.
"""

from collections import Counter

from core.errors import TooManyRequests, Unavailable
from core.settings import Settings

RETRY_S = 1


class PredictConcurrencyLimiter:
    """Limits how many predict requests, and of how many bytes, are in progress. For one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.key_requests: Counter[str] = Counter()
        self.key_bytes: Counter[str] = Counter()
        """The same counts for keys of scope predict, in addition to those of their owners."""

    def acquire_predict_slot(self, owner: str, key: str | None = None) -> "PredictConcurrencySlot":
        """Admit a predict request, before its body is read, until its response has been delivered.

        Args:
            key: id of the key of scope predict that sent it. Such keys may be public, so each may
                use only half of its owner's places.

        Raises:
            TooManyRequests: the owner, or the key, has reached its limit.
            Unavailable: all places are taken.
        """
        owner_request_count, limit = self.requests[owner], self._settings.predict_owner_requests
        of_key, most_of_key = (
            0 if key is None else self.key_requests[key],
            _compute_key_share_of_owner_limit(limit),
        )
        if of_key >= most_of_key:
            raise TooManyRequests(
                f"This key has {of_key} predictions under way, as many as a key of scope predict "
                "may: wait for an answer, or send several images in one request.",
                retry_after_s=RETRY_S,
            )
        if owner_request_count >= limit:
            raise TooManyRequests(
                f"You have {owner_request_count} predictions under way, as many as an owner may: wait for an "
                "answer, or send several images in one request.",
                retry_after_s=RETRY_S,
            )
        if self.requests.total() >= self._settings.predict_requests:
            raise _build_too_many_predictions_error()
        self.requests[owner] += 1
        if key is not None:
            self.key_requests[key] += 1
        return PredictConcurrencySlot(self, owner, key)

    def reserve_held_request_bytes(self, owner: str, key: str | None, count: int) -> None:
        """Count bytes held by predict requests of an owner and key. Raises TooManyRequests or
        Unavailable.
        """
        # Check all limits before counting, so that a refusal leaves nothing counted.
        owner_bytes, limit = self.bytes[owner], self._settings.predict_owner_bytes
        of_key, most_of_key = (
            0 if key is None else self.key_bytes[key],
            _compute_key_share_of_owner_limit(limit),
        )
        if key is not None and of_key + count > most_of_key:
            raise TooManyRequests(
                f"The predictions under way by this key hold {of_key} bytes of images and answers, "
                f"and a key of scope predict may have {most_of_key}: wait for an answer, or send "
                f"smaller images.",
                retry_after_s=RETRY_S,
            )
        if owner_bytes + count > limit:
            raise TooManyRequests(
                f"Your predictions under way hold {owner_bytes} bytes of images and answers, and an owner "
                f"may have {limit}:"
                " wait for an answer, or send smaller images.",
                retry_after_s=RETRY_S,
            )
        if self.bytes.total() + count > self._settings.predict_bytes:
            raise _build_too_many_predictions_error()
        self.bytes[owner] += count
        if key is not None:
            self.key_bytes[key] += count

    def release_predict_slots_and_bytes(
        self, owner: str, key: str | None, requests: int, count: int
    ) -> None:
        """Subtract finished predict requests and their bytes from the counts of an owner and a key."""
        _subtract_held_request_count(self.requests, owner, requests)
        _subtract_held_request_count(self.bytes, owner, count)
        if key is not None:
            _subtract_held_request_count(self.key_requests, key, requests)
            _subtract_held_request_count(self.key_bytes, key, count)


class PredictConcurrencySlot:
    """A predict request's place in the queue, with the bytes that it holds."""

    def __init__(self, line: PredictConcurrencyLimiter, owner: str, key: str | None = None) -> None:
        self.owner = owner
        self.key = key
        self._line: PredictConcurrencyLimiter | None = line
        self._bytes = 0

    def reserve_request_bytes(self, count: int) -> None:
        """Count more bytes held by this predict request. Raises TooManyRequests or Unavailable."""
        assert self._line is not None
        self._line.reserve_held_request_bytes(self.owner, self.key, count)
        self._bytes += count

    def replace_request_bytes_by_response_bytes(self, count: int) -> None:
        """Count the response's bytes in place of the request's. Raises TooManyRequests or
        Unavailable.
        """
        assert self._line is not None
        # Released first, or images and response would count together against the limit.
        self._line.release_predict_slots_and_bytes(self.owner, self.key, 0, self._bytes)
        self._bytes = 0
        self.reserve_request_bytes(count)

    def release_predict_slot(self) -> None:
        """Give up the predict request's place in the queue, with all bytes counted for it."""
        predict_limiter, self._line = self._line, None
        if predict_limiter is not None:
            predict_limiter.release_predict_slots_and_bytes(self.owner, self.key, 1, self._bytes)


def compute_held_bytes_limit(settings: Settings, key: str | None) -> int:
    """Return how many bytes all predict requests of an owner, or of a key, may hold together."""
    return (
        settings.predict_owner_bytes
        if key is None
        else _compute_key_share_of_owner_limit(settings.predict_owner_bytes)
    )


def _compute_key_share_of_owner_limit(limit: int) -> int:
    return max(1, limit // 2)


def _subtract_held_request_count(held_counts: Counter[str], name: str, count: int) -> None:
    held_counts[name] -= count
    # A Counter keeps names whose count is 0.
    if not held_counts[name]:
        del held_counts[name]


def _build_too_many_predictions_error() -> Unavailable:
    return Unavailable(
        "Too many predictions are under way; try again shortly.", retry_after_s=RETRY_S
    )
