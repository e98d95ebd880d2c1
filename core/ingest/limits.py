"""Limits of an archive's contents and cost.

The first group comes from the service's settings. The constants limit what no honest batch needs,
and keep memory and time finite while an archive is unchecked.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the decoder imports this file and must start without pydantic
    from core.settings import Settings

MAX_NAME_BYTES = 1024
"""Longest path of an entry, in bytes of UTF-8."""
MAX_DEPTH = 32
"""Most folders in a path."""
MAX_LABEL_CHARS = 100
MAX_NPY_HEADER_BYTES = 1024
DIRECTORY_BYTES_PER_ENTRY = 256
"""Average size of a zip's directory per entry (names, extra fields, comments), in bytes."""
RATIO_FLOOR_BYTES = 256 << 10
"""Size below which the ratio is not checked, in bytes: blank pictures are honest."""
REPORT_ROWS = 1000
"""Most rejected files that a report lists; the count is complete."""
REPORT_FILES = 100
"""Most ignored files, duplicates and contradicting labels that a report lists each.

Their counts are complete.
"""
PREDICT_IMAGES = 256
"""Most images of one prediction."""
BAD_SHARE = 0.05
"""Share of unusable files above which a batch is rejected."""


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits on an uploaded archive: bytes, entries, pixels, classes and compression ratio.

    Attributes:
        body_bytes: packed size.
        entries: files, or rows of an npz.
        unpacked_bytes: sum over all entries.
        image_pixels: width × height of one image that is decoded whole; a JPEG may have four times
            as many.
        classes: distinct labels.
        ratio: unpacked over packed bytes.
    """

    body_bytes: int = 10 << 30
    entries: int = 500_000
    unpacked_bytes: int = 64 << 30
    image_pixels: int = 50_000_000
    classes: int = 10_000
    ratio: int = 100

    @classmethod
    def from_settings(cls, settings: "Settings") -> "ArchiveLimits":
        """Return the limits on uploaded archives that the settings define."""
        return cls(
            body_bytes=settings.max_body_bytes,
            entries=settings.max_entries,
            unpacked_bytes=settings.max_unpacked_bytes,
            image_pixels=settings.max_image_pixels,
            classes=settings.max_classes,
            ratio=settings.max_ratio,
        )

    @property
    def max_image_file_bytes(self) -> int:
        """Largest file of one image: 16 bits × 4 channels uncompressed, and 1 MiB for headers."""
        return 8 * self.image_pixels + (1 << 20)

    @property
    def decoder_memory_bytes(self) -> int:
        """Memory that a decoder process may use beyond its start: the file, and the image three
        times.
        """
        return self.max_image_file_bytes + 16 * self.image_pixels + (192 << 20)
