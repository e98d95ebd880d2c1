"""Pretrained weights by name, as their publisher describes them."""

from typing import Literal

from core.protocol.document import Document, Number


class Pretrained(Document):
    """The weights of one architecture of timm.

    Attributes:
        name: architecture and weights as timm names them, such as `resnet18.a1_in1k`.
        repository: on the Hub, such as `timm/resnet18.a1_in1k`.
        licence: as the publisher names it, such as `apache-2.0`; empty where none is named.
        size: pixels a side of the images that they were learned on; channels: of those images.
        mean, std: of each channel's values in [0, 1].
        interpolation: how images are resized.
        crop: the share of the resized image's shorter side that the centre crop keeps, in (0, 1].
        parameters: of the backbone without its classifier.
    """

    name: str
    repository: str
    licence: str
    size: int
    channels: int
    mean: list[Number]
    std: list[Number]
    interpolation: Literal["bilinear", "bicubic", "nearest"]
    crop: Number
    parameters: int
