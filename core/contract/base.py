"""The base that a model starts from, and the tensors that an uploaded base must have."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.contract.responses.architecture import ArchitectureChoice, ImageOut, NormalisationOut


class BaseVersion(TypedDict):
    """Another model's version. `model` is its id or name, and always its id once stored."""

    model: str
    version: int


ModelBase = str | BaseVersion
"""`random`, `pretrained`, `perennial/…` (a packaged base), an uploaded base's id, or a version."""
PRETRAINED = "pretrained"
"""The publisher's weights that the architecture is named after."""


class UploadedFor(ArchitectureChoice):
    """The architecture that a base was uploaded for, as stored, with the description of its images.

    - `image`: images that the base was trained on.
    - `normalise`: their statistics, if they were given.
    """

    image: NotRequired[ImageOut]
    normalise: NotRequired[NormalisationOut]


class ExpectedTensor(TypedDict):
    """The shape that a tensor of a base must have, and its dtype as named by safetensors."""

    shape: list[int]
    dtype: str


class ExpectedBase(TypedDict):
    """The tensors that a base of an architecture must have, by name.

    - `optional`: names that may be missing.
    - `ignored`: prefixes of names that are not checked.
    """

    tensors: dict[str, ExpectedTensor]
    optional: list[str]
    ignored: list[str]
