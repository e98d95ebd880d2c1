"""Memory of what a process has verified, so that it reads each file or object only occasionally.

A different tag means that the bytes may have changed. Bits that rot on a disk change no tag, so
entries also expire.
"""

import threading
import time
from collections import OrderedDict

VERIFIED_S = 3600.0


class RecentVerifications:
    """Memory of the last `limit` files and objects whose digest was verified. Safe for threads.

    The limit bounds memory: a worker that runs for months meets new files with every job.
    """

    def __init__(self, limit: int = 8192, age_s: float = VERIFIED_S) -> None:
        self.age_s = age_s
        """Seconds after which a file or object must be verified again; 0 turns the memory off."""
        self._limit = limit
        self._found: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def is_verified(self, name: str, tag: str) -> bool:
        """Return True if the file or object `name` was verified recently with the same tag."""
        with self._lock:
            verified_tag, at = self._found.get(name, ("", 0.0))
        # Empty tags of unknown objects are equal to each other, and prove nothing.
        return bool(tag) and verified_tag == tag and time.monotonic() - at < self.age_s

    def remember_verified(self, name: str, tag: str) -> None:
        """Remember a file or object as verified now; beyond the limit, the oldest entry is dropped."""
        with self._lock:
            # A clock that is set back must not prolong the trust, so the time is monotonic.
            self._found[name] = (tag, time.monotonic())
            # An assignment leaves an entry at its old place, where it would be dropped too early.
            self._found.move_to_end(name)
            if len(self._found) > self._limit:
                self._found.popitem(last=False)

    def replace_verified_tag(self, name: str, tag: str) -> None:
        """Replace a verified file's tag after this process changed its times but not its bytes."""
        with self._lock:
            # Without a new time: changing the file's times verifies nothing.
            if name in self._found:
                self._found[name] = (tag, self._found[name][1])

    def forget_verified_name(self, name: str) -> None:
        """Forget that the file or object `name` was verified."""
        with self._lock:
            self._found.pop(name, None)
