"""Description of a network: an architecture with its hyper-parameters, and its images."""

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

Interpolation = Literal["bilinear", "bicubic", "nearest"]
"""Resampling filter for images."""


@with_config(
    ConfigDict(
        json_schema_extra={
            "additionalProperties": {
                "description": "A hyper-parameter; GET /v1/architectures has the schema of each "
                "architecture"
            }
        }
    )
)
class ArchitectureChoice(TypedDict):
    """An architecture's name, with its hyper-parameters beside it."""

    name: str


class ImageOut(TypedDict):
    """Image settings of a model: images of `size` × `size` pixels with 1 (grey) or 3 (RGB)
    channels.

    - `crop`: share of the resized image's shorter side that the centre crop keeps, in (0, 1];
      absent: all of it up to 96 pixels, 224/256 above.
    - `interpolation`: resampling filter; absent: bilinear.
    - `decoding`: version of the conversion of files to images. 2 converts embedded colour profiles
      to sRGB; absent: 1, which ignores them.
    """

    size: int
    channels: int
    crop: NotRequired[float]
    interpolation: NotRequired[Interpolation]
    decoding: NotRequired[int]


class NormalisationOut(TypedDict):
    """Mean and standard deviation of each channel, by which pixels in [0, 1] are standardised."""

    mean: list[float]
    std: list[float]
