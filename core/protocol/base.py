"""What a model starts from, and what an uploaded base must hold."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.protocol.answers.architecture import ArchitectureChoice, ImageOut, NormalisationOut


class BaseVersion(TypedDict):
    """Another model's version; `model` is its id or name, once stored its id."""

    model: str
    version: int


ModelBase = str | BaseVersion
"""`random`, `pretrained`, `perennial/…` (a base of the package), the id of an uploaded base, or a version."""
PRETRAINED = "pretrained"
"""The weights that the architecture is named by, as their publisher offers them."""


class UploadedFor(ArchitectureChoice):
    """The architecture that a base was uploaded for, as it is stored: with the images beside its hyper-parameters.

    `normalise`: statistics of the images that it was learned on, where they were told.
    """

    image: NotRequired[ImageOut]
    normalise: NotRequired[NormalisationOut]


class ExpectedTensor(TypedDict):
    """The shape that a tensor of a base must have, and its dtype in the words of safetensors."""

    shape: list[int]
    dtype: str


class ExpectedBase(TypedDict):
    """What a base of an architecture must hold, by the tensors' names.

    optional: names that may be left out; ignored: beginnings of names that are not looked at.
    """

    tensors: dict[str, ExpectedTensor]
    optional: list[str]
    ignored: list[str]
