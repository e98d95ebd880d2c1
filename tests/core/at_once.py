"""Run a function in many threads that start at the same moment."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_at_once(work: Callable[[T], R], given: Iterable[T]) -> list[R]:
    """Call a function with each argument in a thread of its own. Return the results or raise the
    first error.
    """
    all_given = list(given)
    together = Barrier(len(all_given))

    def wait_and_do_work(each: T) -> R:
        together.wait(60)
        return work(each)

    with ThreadPoolExecutor(len(all_given)) as threads:
        return list(threads.map(wait_and_do_work, all_given))
