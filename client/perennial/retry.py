"""When a request is made again, and after how long.

Again: after a failure to connect, 408, 429, 502, 503, 504, and 409 while the first request with the same
Idempotency-Key is still in flight. Never after any other 4xx. A request that must not be done twice, and for
which the service keeps no Idempotency-Key, is not made again where the first may have been done: after a
broken connection, 502 and 504.
"""

import random
from dataclasses import dataclass, replace
from typing import Self

from perennial.errors import APIError, PerennialError, ServiceUnreachable

ALWAYS = frozenset({408, 429, 503})
IF_REPLAYABLE = frozenset({502, 504})
TRANSFER_ATTEMPTS = 20
"""In a row without a byte that arrived: about three and a half minutes on average."""
LASTING = frozenset({"storage-full", "schema-outdated"})
"""Problems with such a status that do not go away by waiting: somebody must do something."""


@dataclass(frozen=True)
class Retries:
    """How often, and how long between: full jitter, so that many clients do not come again at once.

    Attributes:
        attempts: requests at most, the first among them; 1: none is made again.
        first_s, longest_s: the most that is waited after the first attempt, doubled after each, and after any.
        patience_s: where the service asks for a longer pause (Retry-After), the error is raised at once.
    """

    attempts: int = 5
    first_s: float = 0.5
    longest_s: float = 30.0
    patience_s: float = 300.0

    def for_transfers(self) -> Self:
        """The same for a file that goes on where it was: through some minutes without a connection, such as a tunnel.

        Who asked for no second attempt gets none.
        """
        return self if self.attempts == 1 else replace(self, attempts=max(self.attempts, TRANSFER_ATTEMPTS))

    def pause_s(self, error: PerennialError, attempt: int, is_replayable: bool) -> float | None:
        """Seconds until the next attempt after the `attempt`-th (from 1); None: there is none."""
        if attempt >= self.attempts or not _may_repeat(error, is_replayable):
            return None
        asked = error.retry_after_s if isinstance(error, APIError) else None
        if asked is not None and asked > self.patience_s:
            return None
        jitter = random.uniform(0, min(self.longest_s, self.first_s * 2 ** (attempt - 1)))
        return jitter if asked is None else asked + jitter


def may_come_back(error: PerennialError) -> bool:
    """Whether a service may answer by itself after a while: it, or what stands before it, is being restarted."""
    if not isinstance(error, APIError):
        return isinstance(error, ServiceUnreachable)
    return error.status in ALWAYS | IF_REPLAYABLE and error.code not in LASTING


def _may_repeat(error: PerennialError, is_replayable: bool) -> bool:
    if isinstance(error, ServiceUnreachable):
        return is_replayable or not error.is_sent
    if not isinstance(error, APIError) or error.code in LASTING:
        return False
    if error.status == 409:
        return error.code == "idempotency-in-flight"
    return error.status in ALWAYS or (is_replayable and error.status in IF_REPLAYABLE)
