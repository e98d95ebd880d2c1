"""Rules for repeating a request, and the pauses in between.

A request is repeated after a failure to connect and after 408, 429, 502, 503 and 504. It is
repeated after 409 while the first request with the same Idempotency-Key is in progress, and never
after any other 4xx. A request that must not be done twice, and that has no Idempotency-Key, is not
repeated if the first may have been done: after a broken connection, 502 and 504.
"""

import random
from dataclasses import dataclass, replace
from typing import Self

from perennial.errors import APIError, PerennialError, ServiceUnreachable

ALWAYS = frozenset({408, 429, 503})
# A proxy sends these, and the service behind it may have done the request.
IF_REPLAYABLE = frozenset({502, 504})
TRANSFER_ATTEMPTS = 20
"""Maximum attempts of a transfer without progress: about three and a half minutes on average."""
LASTING = frozenset({"storage-full", "schema-outdated"})
"""Problem codes with a repeatable status that waiting does not solve."""


@dataclass(frozen=True)
class Retries:
    """Rules for repeating failed requests: number of attempts, and random pauses that grow.

    Attributes:
        attempts: maximum number of attempts, including the first; 1: no repetition.
        first_s, longest_s: upper limit of the first pause in seconds, doubled each time, and of any
            pause.
        patience_s: if the service asks for a longer pause (Retry-After), the error is raised at
            once.
    """

    attempts: int = 5
    first_s: float = 0.5
    longest_s: float = 30.0
    patience_s: float = 300.0

    def copy_with_more_attempts(self) -> Self:
        """Return rules with more attempts, for a resumable transfer that may outlast an outage.

        A limit of one attempt is kept.
        """
        return (
            self
            if self.attempts == 1
            else replace(self, attempts=max(self.attempts, TRANSFER_ATTEMPTS))
        )

    def compute_pause_seconds(
        self, error: PerennialError, attempt: int, is_replayable: bool
    ) -> float | None:
        """Return the seconds to wait before the next attempt after an error; None to give up."""
        if attempt >= self.attempts or not _is_safe_to_repeat(error, is_replayable):
            return None
        retry_after_s = error.retry_after_s if isinstance(error, APIError) else None
        if retry_after_s is not None and retry_after_s > self.patience_s:
            return None
        # Jitter also after Retry-After, since all refused clients got the same one.
        jitter = random.uniform(0, min(self.longest_s, self.first_s * 2 ** (attempt - 1)))
        return jitter if retry_after_s is None else retry_after_s + jitter


def is_service_error_temporary(error: PerennialError) -> bool:
    """Return True if the service's error may pass by itself, as during a restart."""
    if not isinstance(error, APIError):
        return isinstance(error, ServiceUnreachable)
    return error.status in ALWAYS | IF_REPLAYABLE and error.code not in LASTING


def _is_safe_to_repeat(error: PerennialError, is_replayable: bool) -> bool:
    if isinstance(error, ServiceUnreachable):
        return is_replayable or not error.is_sent
    if not isinstance(error, APIError) or error.code in LASTING:
        return False
    # Any other conflict describes a state that a repetition would meet again.
    if error.status == 409:
        return error.code == "idempotency-in-flight"
    return error.status in ALWAYS or (is_replayable and error.status in IF_REPLAYABLE)
