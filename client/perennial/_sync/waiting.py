"""How this client waits, and does what takes long without the network. `_async/waiting.py` is written by hand too."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def sleep(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)


def in_thread(work: Callable[[], T]) -> T:
    """Do it, here."""
    return work()


def from_thread(items: Iterator[T]) -> Iterator[T]:
    """The same items, made here."""
    return items
