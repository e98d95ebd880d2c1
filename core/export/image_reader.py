"""Code that reads image files, for downloads: copies of the service's own files.

Versions with the first decoding need none, because their cards contain the code. Clients do not
unpack folders, so a download has none. Each file of the package `core.ingest.image_file` therefore
becomes a module, and its relative imports become imports of these modules. No other line changes.
"""

import ast
from functools import cache
from pathlib import Path

from core.contract.architecture import ImageSettings

MODULE = "image_file"
FIRST, SECOND = 1, 2
_FOLDER = Path(__file__).parents[1] / "ingest" / MODULE


def get_image_decoding_version(image: ImageSettings) -> int:
    """Return the version of the image decoding code that a model uses."""
    number = image.decoding or FIRST
    assert number in (FIRST, SECOND), f"no export knows the decoding {number}"
    return number


def build_image_reader_files(image: ImageSettings) -> dict[str, str]:
    """Return name → text of the Python files in a download that read images; none for decoding
    version 1.
    """
    return {} if get_image_decoding_version(image) == FIRST else dict(_build_files())


@cache  # every download holds the same files
def _build_files() -> dict[str, str]:
    # Sorted, since the order of entries changes the bytes of the download.
    return {
        f"{_get_download_module_name(path.stem)}.py": _replace_relative_imports(
            path.read_text(encoding="utf-8")
        )
        for path in sorted(_FOLDER.glob("*.py"))
    }


def _get_download_module_name(name: str) -> str:
    return MODULE if name == "__init__" else f"{MODULE}_{name}"


def _replace_relative_imports(text: str) -> str:
    """Replace a module's relative imports by imports of modules next to it in the download."""
    source_lines = text.splitlines()
    # From the end, so that the line numbers before stay valid.
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and node.level:
            source_lines[node.lineno - 1 : node.end_lineno] = _rewrite_relative_import(node)
    return "\n".join(source_lines) + "\n"


def _rewrite_relative_import(node: ast.ImportFrom) -> list[str]:
    if node.module is None:
        return [
            f"import {_get_download_module_name(alias.name)} as {alias.name}"
            for alias in node.names
        ]
    return [
        f"from {_get_download_module_name(node.module)} "
        f"import {', '.join(alias.name for alias in node.names)}"
    ]
