"""The code that reads image files, as it lies in downloads: copies of the service's own files, side by side.

Versions whose images were decoded in the first way have none: their cards hold the code. A download has no folders,
which clients do not unpack, so the package `core.ingest.image_file` becomes one module for each of its files, and its
relative imports name these; no other line changes.
"""

import ast
from pathlib import Path

from core.protocol.architecture import Image

MODULE = "image_file"
FIRST, SECOND = 1, 2
_FOLDER = Path(__file__).parents[1] / "ingest" / MODULE


def decoding_of(image: Image) -> int:
    """Number of the way in which a version's images are decoded."""
    number = image.decoding or FIRST
    assert number in (FIRST, SECOND), f"no export knows the decoding {number}"
    return number


def reader_files(image: Image) -> dict[str, str]:
    """Name in the download → text; empty for the first decoding."""
    if decoding_of(image) == FIRST:
        return {}
    files = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py"))}
    return {f"{_module(name)}.py": _side_by_side(text) for name, text in files.items()}


def _module(name: str) -> str:
    return MODULE if name == "__init__" else f"{MODULE}_{name}"


def _side_by_side(text: str) -> str:
    """A module of the package with its relative imports as imports of the modules beside it."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and node.level:
            lines[node.lineno - 1 : node.end_lineno] = _absolute(node)
    return "\n".join(lines) + "\n"


def _absolute(node: ast.ImportFrom) -> list[str]:
    if node.module is None:
        return [f"import {_module(one.name)} as {one.name}" for one in node.names]
    return [f"from {_module(node.module)} import {', '.join(one.name for one in node.names)}"]
