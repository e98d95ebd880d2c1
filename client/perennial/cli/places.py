"""Output files and folders that a person names."""

from __future__ import annotations

import os
from pathlib import Path


def file_at(place: str | None, name: str) -> Path:
    """Return the file to write, creating its folder if necessary.

    Args:
        place: a file; or a folder, which exists or ends with a slash. None: the working directory.
        name: name of the file in a folder.
    """
    text = place or "."
    is_folder = text.endswith((os.sep, os.altsep or os.sep)) or Path(text).is_dir()
    target = Path(text) / name if is_folder else Path(text)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def folder_at(place: str | None) -> Path:
    """Return a folder to write into, creating it if necessary; None: the working directory."""
    target = Path(place or ".")
    target.mkdir(parents=True, exist_ok=True)
    return target
