"""Two versions side by side with the pictures of images that flipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perennial._types import Compare, ComparedImage

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Comparison:
    """What `versions.compare_with_pictures` gives; a notebook shows it with the pictures in it.

    Attributes:
        compare: the counts.
        images: images that flipped, each with both answers.
        pictures: of each of them the bytes of a PNG.
    """

    compare: Compare
    images: list[ComparedImage]
    pictures: list[bytes] = field(repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError for bytes that are no PNG, or of another number than the images."""
        if len(self.pictures) != len(self.images) or not all(one.startswith(_PNG) for one in self.pictures):
            raise ValueError("each image needs one picture, as PNG")

    def _repr_html_(self) -> str:
        from perennial.notebook import describe_comparison

        return describe_comparison(self)
