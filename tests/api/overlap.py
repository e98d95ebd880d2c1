"""Work that shows how much of it is done at once."""

import threading
import time

PATIENCE_S = 60


class Overlap:
    """Work whose pieces wait until enough of them are done at once.

    Args:
        least: pieces that must meet once.

    Attributes:
        most: pieces that were done at once.
        order: the names of the pieces, as they began.
    """

    def __init__(self, least: int) -> None:
        self.most = 0
        self.order: list[str] = []
        self._least = least
        self._now = 0
        self._changed = threading.Condition()

    def work(self, name: str = "") -> str:
        """Do a piece."""
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self.order.append(name)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._least, PATIENCE_S)
        time.sleep(0.01)  # one too many would be seen
        with self._changed:
            self._now -= 1
        return name
