"""Two versions side by side, with pictures of images that flipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perennial._types import Compare, ComparedImage

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Comparison:
    """Comparison of two versions with pictures of changed predictions, which a notebook shows.

    Attributes:
        compare: the counts.
        images: images that flipped, each with both predictions.
        pictures: PNG bytes of each of these images.
    """

    compare: Compare
    images: list[ComparedImage]
    # The repr in a shell would otherwise print the bytes of every picture.
    pictures: list[bytes] = field(repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError unless there is one PNG picture for each image."""
        # A notebook embeds them as image/png, so no other content of the service may pass.
        if len(self.pictures) != len(self.images) or not all(
            one.startswith(_PNG) for one in self.pictures
        ):
            raise ValueError("each image needs one picture, as PNG")

    def _repr_html_(self) -> str:
        from perennial.notebook import render_comparison_as_html

        return render_comparison_as_html(self)
