"""What a job child leaves behind: `result.json` and one safetensors file per part.

The child is our own code but another process, so its answer is checked before it becomes a version.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.work.progress import finite

_PART = re.compile(r"[a-z0-9][a-zA-Z0-9._-]{0,99}")
MEASURED = ("base", "parent", "new")


@dataclass(frozen=True)
class PartFile:
    """One part of the new version, still a local file."""

    name: str
    type: str
    path: Path


@dataclass(frozen=True)
class Measured:
    """One cell of R: `version` is base, parent or new; counts are whole numbers."""

    version: str
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


@dataclass(frozen=True)
class JobResult:
    """A child's whole answer; `document` is `result.json` with None for non-finite numbers."""

    document: dict[str, Any]
    parts: list[PartFile]
    measured: list[Measured]

    @property
    def warnings(self) -> list[str]:
        return [str(text) for text in self.document.get("warnings", [])]


def read(folder: Path) -> JobResult:
    """Read and check a result folder.

    Raises:
        ValueError: it is not a complete result.
    """
    document, parts = read_parts(folder)
    try:
        measured = [_measured(row) for row in document["results"]]
    except (KeyError, TypeError) as error:
        raise _incomplete(error) from error
    return JobResult(document, parts, measured)


def read_parts(folder: Path) -> tuple[dict[str, Any], list[PartFile]]:
    """Read and check what every folder of parts has: its document and the parts' files.

    Raises:
        ValueError: something is missing or named twice.
    """
    try:
        document = finite(json.loads((folder / "result.json").read_text()))
        parts = [_part(folder, part) for part in document["parts"]]
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise _incomplete(error) from error
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("The job's result names a part twice.")
    return document, parts


def _incomplete(error: Exception) -> ValueError:
    return ValueError(f"The job left no complete result: {type(error).__name__} {error}.")


def _part(folder: Path, part: dict[str, Any]) -> PartFile:
    name, file = str(part["name"]), str(part["file"])
    path = (folder / file).resolve()
    if not _PART.fullmatch(name) or not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ValueError(f"The job's part {name!r} ({file!r}) is not a file of its result.")
    return PartFile(name, str(part["type"]), path)


def _measured(row: dict[str, Any]) -> Measured:
    cell = Measured(
        str(row["version"]), int(row["task"]), int(row["correct"]), int(row["total"]), dict(row["per_class"])
    )
    if cell.version not in MEASURED or not 0 <= cell.correct <= cell.total:
        raise ValueError(f"The job's measurement of task {cell.task} is impossible: {row}.")
    return cell
