"""Files of a running service, which may disappear while a test looks through them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def list_live_paths(folder: Path) -> list[Path]:
    """Return all files and folders below a folder.

    Folders that another job deletes meanwhile are passed over; `Path.rglob` raises there.
    """
    return [
        Path(parent, name)
        for parent, folders, files in os.walk(folder)
        for name in sorted([*folders, *files])
    ]


def list_live_files(folder: Path, since: float = 0.0) -> list[Path]:
    """Return the files below a folder that were written to since a time.

    Args:
        since: Unix seconds; older files belong to other tests that share the service.
    """
    files = []
    for path in list_live_paths(folder):
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime >= since:
                files.append(path)
    return files


def read_live_files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each file below a folder with its bytes."""
    for path in list_live_files(folder):
        with suppress(FileNotFoundError):
            yield path, path.read_bytes()
