"""The package that reads image files, as it lies in downloads: copies of the service's own files.

Versions whose images were decoded in the first way have none: their cards hold the code.
"""

from pathlib import Path

from core.protocol.architecture import Image

PACKAGE = "image_file"
FIRST, SECOND = 1, 2
_FOLDER = Path(__file__).parents[1] / "ingest" / PACKAGE


def decoding_of(image: Image) -> int:
    """Number of the way in which a version's images are decoded."""
    number = image.decoding or FIRST
    assert number in (FIRST, SECOND), f"no export knows the decoding {number}"
    return number


def reader_files(image: Image) -> dict[str, str]:
    """Path in the download → text; empty for the first decoding."""
    if decoding_of(image) == FIRST:
        return {}
    return {
        f"{PACKAGE}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py"))
    }
