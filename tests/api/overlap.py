"""Work that counts how many of its pieces run at the same time."""

import threading
import time

PATIENCE_S = 60


class Overlap:
    """Work whose pieces wait until enough of them run at the same time.

    Args:
        least: pieces that must run at the same time once.

    Attributes:
        most: pieces that ran at the same time.
        order: the names of the pieces in the order of their starts.
    """

    def __init__(self, least: int) -> None:
        self.most = 0
        self.order: list[str] = []
        self._least = least
        self._now = 0
        self._changed = threading.Condition()

    def work(self, name: str = "") -> str:
        """Run one piece and return its name."""
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self.order.append(name)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._least, PATIENCE_S)
        time.sleep(0.01)  # lets a piece too many start and be counted
        with self._changed:
            self._now -= 1
        return name
