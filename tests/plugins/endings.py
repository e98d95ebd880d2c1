"""Services are killed at the end of a run.

The fixtures of a session end one after the other, and each waits seconds for its service.
"""

import contextlib
from collections.abc import Iterable

import psutil
import pytest

from tools.service import RunningService


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Kill all services before the fixtures of the last test end them, unless it may use one."""
    values = getattr(item, "funcargs", {}).values()
    uses_service = any(isinstance(value, RunningService) for value in values)
    if nextitem is None and not uses_service and item.get_closest_marker("slow") is None:
        end_services(psutil.Process().children())


def end_services(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes that are launchers of services, with all processes that they started.

    An orderly shutdown takes seconds, and the data of these services is not needed any more.
    """
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if "worker.launcher" in process.cmdline():
                for one in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
