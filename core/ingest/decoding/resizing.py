"""Decoding version and resizing of image files."""

from collections.abc import Mapping
from dataclasses import dataclass

from PIL.Image import Resampling

from core.ingest.image_file import geometry

FIRST, LATEST = 1, 2
"""Decoding versions.

The first one, which also applies if a manifest has none, ignores colour profiles. The second one
converts them to sRGB.
"""


@dataclass(frozen=True)
class SquareResizingSettings:
    """Settings for converting an image to a square: crop, interpolation and decoding.

    Attributes:
        crop: share of the shorter side that the centre crop keeps, in (0, 1]. None means all of it
            up to 96 pixels, 224/256 above.
        interpolation: `bilinear`, `bicubic` or `nearest`; None means bilinear. The first two are
            antialiased.
        decoding: FIRST or LATEST.
    """

    crop: float | None = None
    interpolation: str | None = None
    decoding: int = FIRST

    @staticmethod
    def from_json(image: Mapping[str, object]) -> "SquareResizingSettings":
        """Return the conversion to squares that a model's `image` settings define; each field may
        be missing.
        """
        crop, interpolation = image.get("crop"), image.get("interpolation")
        assert crop is None or isinstance(crop, int | float), "the API has checked it"
        decoding = image.get("decoding") or FIRST
        # The service may have been rolled back from the release that made the model.
        if not isinstance(decoding, int) or not FIRST <= decoding <= LATEST:
            raise ValueError(f"images of decoding {decoding!r} need a later version of the service")
        return SquareResizingSettings(
            crop, None if interpolation is None else str(interpolation), decoding
        )

    def compute_resized_shorter_side(self, size: int) -> int:
        """Return to how many pixels an image's shorter side is resized, before a crop of `size`
        pixels.
        """
        return geometry.shorter_side(size, self.crop)

    @property
    def pillow_filter(self) -> Resampling:
        """Pillow's resampling filter for the interpolation."""
        return geometry.resample(self.interpolation)


USUAL = SquareResizingSettings()
"""Default for models whose base has no setting."""
