"""What a process has verified, so that it reads each file or object only once in a while.

A tag says what it was: another one means that the bytes may have changed. Bits that rot on a disk change no tag, so
what is remembered also ages.
"""

import threading
import time
from collections import OrderedDict

VERIFIED_S = 3600.0


class Verified:
    """Of very many files the last `limit`: a worker that runs for months meets a few more with every job.

    Safe for threads.
    """

    def __init__(self, limit: int = 8192, age_s: float = VERIFIED_S) -> None:
        self.age_s = age_s
        """Seconds after which a file or object must be verified again; 0: nothing is remembered."""
        self._limit = limit
        self._found: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, name: str, tag: str) -> bool:
        """Whether it was verified as what it is now, and lately."""
        with self._lock:
            known, at = self._found.get(name, ("", 0.0))
        return bool(tag) and known == tag and time.monotonic() - at < self.age_s

    def add(self, name: str, tag: str) -> None:
        """Remember it, from now on, in place of the one that was added longest ago."""
        with self._lock:
            self._found[name] = (tag, time.monotonic())
            self._found.move_to_end(name)
            if len(self._found) > self._limit:
                self._found.popitem(last=False)

    def retag(self, name: str, tag: str) -> None:
        """Give what is remembered another tag: it was changed by ourselves, its bytes were not."""
        with self._lock:
            if name in self._found:
                self._found[name] = (tag, self._found[name][1])

    def drop(self, name: str) -> None:
        """Forget it; one that is not there is fine."""
        with self._lock:
            self._found.pop(name, None)
