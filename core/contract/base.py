"""The base that a model starts from, and the tensors that an uploaded base must have."""

from typing import NotRequired

from typing_extensions import TypedDict

from core.contract.responses.architecture import ArchitectureChoice, ImageOut, NormalisationOut


class BaseVersion(TypedDict):
    """A version of another model, used as a base. `model` is its id or name, and always its id once
    stored.
    """

    model: str
    version: int


ModelBase = str | BaseVersion
"""`random`, `pretrained`, `perennial/…` (a packaged base), an uploaded base's id, or a version."""
PRETRAINED = "pretrained"
"""The publisher's weights that the architecture is named after."""


ADOPTED = "adopted"
"""Base of a model whose version 1 came from elsewhere: a whole classifier."""
ADOPTED_VERSION = 1
"""Number of that version, and of the task that stands for what it had learned before."""


class UploadedClassifierDescription(TypedDict):
    """The head's tensors and the classes of an uploaded base that is a whole classifier.

    - `classes`: names of the rows of its head, in their order.
    - `head`: name of the head's module in the file, such as `fc`.
    - `stages`: names of the tensors of each stage of the backbone, input side first.
    """

    classes: list[str]
    head: str
    stages: list[list[str]]


class UploadedBaseDescription(ArchitectureChoice):
    """The architecture that a base was uploaded for, with a description of its images, as stored.

    - `image`: images that the base was trained on.
    - `normalise`: their statistics, if they were given.
    - `classifier`: if the base is a whole classifier, which a model adopts.
    """

    image: NotRequired[ImageOut]
    normalise: NotRequired[NormalisationOut]
    classifier: NotRequired[UploadedClassifierDescription]


class ExpectedTensor(TypedDict):
    """The shape that a tensor of a base must have, and its dtype as named by safetensors."""

    shape: list[int]
    dtype: str


class ExpectedBaseTensors(TypedDict):
    """The tensors that a base of an architecture must have, by name.

    - `optional`: names that may be missing.
    - `ignored`: prefixes of names that are not checked.
    - `width`: numbers in a feature vector, which a classifier reads.
    - `stages`: names of the tensors of each stage, input side first.
    """

    tensors: dict[str, ExpectedTensor]
    optional: list[str]
    ignored: list[str]
    width: int
    stages: list[list[str]]
