"""Background tasks of the API that do something regularly."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class PeriodicTask(ABC):
    """Base class of a task of the event loop that calls `run_once` again and again.

    Args:
        name: name of the task.
        period_s: seconds between two calls.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self._name = name
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> None:
        """Do the work of one period; an exception ends the periodic task."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run_periodically(), name=self._name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self.run_once()
