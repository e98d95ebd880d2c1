"""Make a square of an image file: the number of the way in which it is decoded, and how it is resized."""

from collections.abc import Mapping
from dataclasses import dataclass

from PIL.Image import Resampling

from core.ingest.image_file import geometry

FIRST, LATEST = 1, 2
"""Numbers of ways to decode. The first one, also where a manifest names none, leaves colour profiles aside; the second
one turns them to sRGB."""


@dataclass(frozen=True)
class Resizing:
    """`crop`: share of the shorter side that the centre crop keeps, in (0, 1]; None: all of it up to 96 pixels, 224/256
    above. `interpolation`: `bilinear`, `bicubic` or `nearest`; None: bilinear. The first two are antialiased.
    `decoding`: FIRST or LATEST.
    """

    crop: float | None = None
    interpolation: str | None = None
    decoding: int = FIRST

    @staticmethod
    def of(image: Mapping[str, object]) -> "Resizing":
        """That of a model's `image`, in which each may be missing."""
        crop, interpolation = image.get("crop"), image.get("interpolation")
        assert crop is None or isinstance(crop, int | float), "the API has checked it"
        decoding = image.get("decoding") or FIRST
        if not isinstance(decoding, int) or not FIRST <= decoding <= LATEST:
            raise ValueError(f"images of decoding {decoding!r} need a later version of the service")
        return Resizing(crop, None if interpolation is None else str(interpolation), decoding)

    def side(self, size: int) -> int:
        """Pixels of the shorter side after resizing, for a crop of `size` pixels."""
        return geometry.shorter_side(size, self.crop)

    @property
    def filter(self) -> Resampling:
        """Pillow's name of the interpolation."""
        return geometry.resample(self.interpolation)


USUAL = Resizing()
"""Where a model's base says nothing."""
