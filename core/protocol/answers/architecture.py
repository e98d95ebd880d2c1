"""What network is built: an architecture with its hyper-parameters, and the images that it reads."""

from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

Interpolation = Literal["bilinear", "bicubic", "nearest"]
"""How images are resized."""


@with_config(
    ConfigDict(
        json_schema_extra={
            "additionalProperties": {
                "description": "A hyper-parameter; GET /v1/architectures has the schema of each architecture"
            }
        }
    )
)
class ArchitectureChoice(TypedDict):
    """An architecture's name, and beside it its hyper-parameters."""

    name: str


class ImageOut(TypedDict):
    """Images of `size` × `size` pixels with 1 (grey) or 3 (RGB) channels.

    `crop`: share of the resized image's shorter side that the centre crop keeps, in (0, 1]; absent: all of it up to 96
    pixels, 224/256 above. `interpolation`: how images are resized; absent: bilinear. `decoding`: number of the
    way in which files become images: 2 turns embedded colour profiles to sRGB; absent: 1, which leaves them aside.
    """

    size: int
    channels: int
    crop: NotRequired[float]
    interpolation: NotRequired[Interpolation]
    decoding: NotRequired[int]


class NormalisationOut(TypedDict):
    """Statistics of pixels in [0, 1], one number per channel, by which a network's inputs are standardised."""

    mean: list[float]
    std: list[float]
