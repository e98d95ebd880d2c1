"""The one JSON file of a run on an accelerator: each step's outcome, written as soon as the step
ends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from core.contract.document import Document, Number

Status = Literal["ok", "failed", "timed out", "not run"]


class MachineDescription(Document):
    """Hardware and software on which a step of the GPU check ran."""

    device: str
    card: str
    torch: str
    python: str
    cores: int
    driver: str | None = None
    cuda: str | None = None
    cudnn: int | None = None


class GpuCheckStepResult(Document):
    """Outcome of one step of the GPU check: figures, problems and duration.

    figures: what was measured, by name; of a step that failed, what it had measured until then.
    seconds, limit_seconds: of the step's process. error: null when status is ok. log: the last
    lines of output of a step that did not end well.
    """

    status: Status
    seconds: Number
    limit_seconds: Number
    device: str
    tiny: bool
    machine: MachineDescription | None = None
    figures: dict[str, JsonValue] = Field(default_factory=dict)
    error: str | None = None
    log: list[str] = Field(default_factory=list)


class GpuCheckResult(Document):
    """Outcomes of all steps of the GPU check so far, by step name."""

    format: Literal[1] = 1
    steps: dict[str, GpuCheckStepResult] = Field(default_factory=dict)

    def is_step_done(self, name: str, device: str, tiny: bool) -> bool:
        """Return True if a step of the GPU check has succeeded on this kind of device at this size."""
        step = self.steps.get(name)
        return step is not None and (step.status, step.device, step.tiny) == ("ok", device, tiny)

    def copy_with_step(self, name: str, step: GpuCheckStepResult) -> GpuCheckResult:
        """Return a copy of the outcomes with that of another step added or replaced."""
        return GpuCheckResult(steps={**self.steps, name: step})


def read_gpu_check_results(path: Path) -> GpuCheckResult:
    """Read the stored outcomes of the GPU check; none if there is no file.

    Raises:
        ValueError: the file has another format.
    """
    return (
        GpuCheckResult.from_json(json.loads(path.read_text()))
        if path.exists()
        else GpuCheckResult()
    )


def write_gpu_check_results(path: Path, result: GpuCheckResult) -> None:
    """Write the outcomes of the GPU check to a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    content = {**result.to_json(), "format": result.format}
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
