"""How an image is resized before its centre is cropped to S × S pixels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from PIL.Image import Resampling

_NO_MARGIN_UP_TO = 96
"""Images of at most this side are resized to S itself; larger ones get the usual 256/224 margin."""
_ROUNDING = 1e-9
"""A share such as 224/256 times what it divides may miss the whole number by the last bit."""


@dataclass(frozen=True)
class Resizing:
    """`crop`: share of the shorter side that the centre crop keeps, in (0, 1]; None: all of it up to 96 pixels, 224/256
    above. `interpolation`: `bilinear`, `bicubic` or `nearest`; None: bilinear. The first two are antialiased.
    """

    crop: float | None = None
    interpolation: str | None = None

    @staticmethod
    def of(image: Mapping[str, object]) -> "Resizing":
        """That of a model's `image`, in which either may be missing."""
        crop, interpolation = image.get("crop"), image.get("interpolation")
        assert crop is None or isinstance(crop, int | float), "the API has checked it"
        return Resizing(crop, None if interpolation is None else str(interpolation))

    def side(self, size: int) -> int:
        """Pixels of the shorter side after resizing, for a crop of `size` pixels."""
        if self.crop is not None:
            return math.floor(size / self.crop + _ROUNDING)
        return size if size <= _NO_MARGIN_UP_TO else round(size * 256 / 224)

    @property
    def filter(self) -> Resampling:
        """Pillow's name of the interpolation."""
        return Resampling[(self.interpolation or "bilinear").upper()]


USUAL = Resizing()
"""Where a model's base says nothing."""
