"""Pretrained weights by name, as their publisher describes them, and the table that lists them."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.document import Document, Number
from core.contract.responses.architecture import Interpolation

ResizedBy = Literal["", "dynamic_img_size", "img_size"]


class PretrainedWeights(Document):
    """Pretrained weights of one timm architecture: repository, licence and image sizes.

    Attributes:
        name: architecture and weights as timm names them, such as `resnet18.a1_in1k`.
        repository: repository on the Hub, such as `timm/resnet18.a1_in1k`; empty if there is none.
        licence: licence as the publisher names it, such as `apache-2.0`; empty if it names none.
        size: pixels a side of the training images.
        channels: channels of the training images.
        mean, std: statistics of each channel's values in [0, 1].
        interpolation: resampling filter of images.
        crop: share of the resized image's shorter side that the centre crop keeps, in (0, 1].
        parameters: number of parameters of the backbone, without its classifier.
        activations: float32 values that a backward pass needs for one image of `size`.
        widest: float32 values of the widest layer.
        step: other sizes are multiples of it; 0 if there are no other sizes.
        smallest: smallest of the other sizes.
        resized_by: timm's argument for another size; empty if it needs none.
    """

    name: str
    repository: str
    licence: str
    size: int
    channels: int
    mean: list[Number]
    std: list[Number]
    interpolation: Interpolation
    crop: Number
    parameters: int
    activations: int
    widest: int
    step: int
    smallest: int
    resized_by: ResizedBy

    def accepts_image_size(self, size: int) -> bool:
        """Return whether the network takes images of `size` pixels a side."""
        is_other_size = bool(self.step) and size >= self.smallest and size % self.step == 0
        return size == self.size or is_other_size

    def build_timm_arguments(self, size: int) -> dict[str, bool | int]:
        """Return the arguments of timm's `create_model` for images of `size` pixels a side."""
        if size == self.size or not self.resized_by:
            return {}
        return {self.resized_by: True if self.resized_by == "dynamic_img_size" else size}

    def describe_image_sizes(self) -> str:
        """Return the sizes that the network takes, in words."""
        if not self.step:
            return f"{self.size} pixels alone"
        multiples = "" if self.step == 1 else f" in multiples of {self.step}"
        return f"{self.size} pixels, or {self.smallest} and more{multiples}"


class PretrainedWeightsRow(TypedDict):
    """Pretrained weights without their name, as a row of the catalogue."""

    repository: str
    licence: str
    size: int
    channels: int
    mean: list[float]
    std: list[float]
    interpolation: Interpolation
    crop: float
    parameters: int
    activations: int
    widest: int
    step: int
    smallest: int
    resized_by: ResizedBy


class PretrainedWeightsTable(TypedDict):
    """Table of all pretrained weights by name, and of those that cannot be used, with the reason."""

    weights: dict[str, PretrainedWeightsRow]
    refused: dict[str, str]


def build_pretrained_weights_from_row(name: str, row: PretrainedWeightsRow) -> PretrainedWeights:
    """Describe pretrained weights by their name and their row of the catalogue."""
    return PretrainedWeights(name=name, **row)
