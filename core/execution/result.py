"""The result that a job's child process leaves: `result.json`, and one safetensors file per part.

The child runs our own code but is another process, so its result is checked before it becomes a
version.
"""

import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from core.contract.jobs.job_result import (
    BestStateSoFarResult,
    LearnedNetworkRecord,
    LearnJobResult,
    NewVersionPartFile,
)

# A name becomes a row's key, which has at most 100 characters.
_PART = re.compile(r"[a-z0-9][a-zA-Z0-9._-]{0,99}")
_Said = TypeVar("_Said", bound=LearnedNetworkRecord)


@dataclass(frozen=True)
class ResultVersionPartFile:
    """A part of a new version as a local file in a job's result folder."""

    name: str
    type: str
    path: Path


@dataclass(frozen=True)
class JobProcessResult(Generic[_Said]):
    """The result of a job process: its `result.json` document, parts and folder."""

    document: _Said
    parts: list[ResultVersionPartFile]
    folder: Path


def read_result_folder(folder: Path) -> JobProcessResult[LearnJobResult]:
    """Read and check the result folder of a finished job process.

    Raises:
        ValueError: it is not a complete result.
    """
    result = _read_result_folder(folder, LearnJobResult)
    for cell in result.document.results:
        # A wrong count would stay in the matrix, since versions are immutable.
        if not (0 <= cell.correct <= cell.total and 0 <= cell.correct_count <= cell.total):
            raise ValueError(
                f"The job's measurement of task {cell.task} is impossible: {cell.to_json()}."
            )
    document = result.document
    files = [one.file for one in document.answers] + [
        one.file for one in document.held_out_features
    ]
    inside = _FolderContainmentCheck(folder)
    for file in [*files, *([] if document.totals is None else [document.totals])]:
        if not inside.contains_file(file):
            raise ValueError(f"The job's file {file!r} is not a file of its result.")
    return result


def read_best_state_folder(folder: Path) -> JobProcessResult[BestStateSoFarResult]:
    """Read and check the folder with the best validated state of a running job.

    Raises:
        ValueError: it is not complete.
    """
    return _read_result_folder(folder, BestStateSoFarResult)


def _read_result_folder(folder: Path, kind: type[_Said]) -> JobProcessResult[_Said]:
    try:
        text = (folder / "result.json").read_text()
        document = kind.from_json(json.loads(text, parse_constant=_parse_non_finite_as_none))
    except (FileNotFoundError, ValidationError) as error:
        raise ValueError(
            f"The job left no complete result: {type(error).__name__} {error}."
        ) from error
    parts = [_resolve_part_file_inside_folder(folder, part) for part in document.parts]
    # Rows of parts are keyed by name, so a second one could not be stored.
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("The job's result names a part twice.")
    return JobProcessResult(document, parts, folder)


def _parse_non_finite_as_none(_name: str) -> None:
    """Parse a JSON constant for NaN or infinity as None."""


def _resolve_part_file_inside_folder(
    folder: Path, part: NewVersionPartFile
) -> ResultVersionPartFile:
    """Return the path of a part file after checking that it is inside the result folder.

    Raises:
        ValueError: it is not.
    """
    if not _PART.fullmatch(part.name) or not _FolderContainmentCheck(folder).contains_file(
        part.file
    ):
        raise ValueError(
            f"The job's part {part.name!r} ({part.file!r}) is not a file of its result."
        )
    return ResultVersionPartFile(part.name, part.type, (folder / part.file).resolve())


class _FolderContainmentCheck:
    """A folder that tells whether files are inside it; resolves each subfolder only once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Resolved on both sides, so that a link in the folder cannot lead out of it.
        self._root = folder.resolve()
        self._folders: dict[Path, Path] = {}

    def contains_file(self, file: str) -> bool:
        """Return True if a relative path is a regular file inside the folder."""
        path = self._folder / file
        if path.parent not in self._folders:
            self._folders[path.parent] = path.parent.resolve()
        path = self._folders[path.parent] / path.name
        try:
            # Of the path itself: what a link leads to would not be inside.
            is_file = stat.S_ISREG(path.lstat().st_mode)
        except OSError:
            return False
        return is_file and path.is_relative_to(self._root)
