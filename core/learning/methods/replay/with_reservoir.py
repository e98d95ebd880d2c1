"""Base of the methods that store examples in a reservoir over all tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from core.learning.memory.reservoir import ReservoirBuffer, open_replay_reservoir
from core.learning.methods.method import Method
from core.learning.recipe import StrictRecipeModel
from core.learning.training.context import TaskTrainingContext


class BufferHyper(StrictRecipeModel):
    """Hyper-parameters of replay methods; `buffer`: number of examples retained from all tasks."""

    buffer: Annotated[int, Field(ge=1, le=1_000_000)] = 500


class ReservoirMethod(Method):
    """Base class of methods with a reservoir replay buffer, stored under "buffer" in their
    state.
    """

    inherited_state = ("buffer",)
    remembers = "buffer"
    hyper: BufferHyper

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Fit the reservoir replay buffer to its capacity when a task begins."""
        self._open_reservoir(ctx).rescale_offers_and_trim_reservoir()

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete every stored example of these tasks from the reservoir."""
        if self.state["buffer"]:
            ReservoirBuffer(self.state["buffer"], self.hyper.buffer, 0).remove_items_of_tasks(tasks)

    def _open_reservoir(self, ctx: TaskTrainingContext) -> ReservoirBuffer:
        return open_replay_reservoir(ctx, self.state["buffer"], self.hyper.buffer)
