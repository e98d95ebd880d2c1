"""Description of a network: its architecture, its images, and the scenario that it learns in."""

from typing import Literal

from pydantic import JsonValue

from core.contract.document import Document, Number
from core.contract.responses.architecture import Interpolation

Scenario = Literal["data", "task", "class"]


class ArchitectureWithHyperParameters(Document):
    """An architecture's name, with its hyper-parameters as further fields."""

    name: str

    @property
    def hyper(self) -> dict[str, JsonValue]:
        """The architecture's hyper-parameters by name."""
        return self.get_unknown_fields()


class ImageSettings(Document):
    """Size and channels of a model's square input images, and the conversion of files to them.

    Attributes:
        size: pixels a side.
        channels: 1 or 3.
        crop: share of the resized image's shorter side that the centre crop keeps, in (0, 1]. None
            means all of it up to 96 pixels, 224/256 above.
        interpolation: resampling filter; None means bilinear.
        decoding: version of the conversion of files to images (`core.ingest.decoding.resizing`); None means
            the first.
    """

    size: int
    channels: int
    crop: Number | None = None
    interpolation: Interpolation | None = None
    decoding: int | None = None


class Normalisation(Document):
    """Mean and standard deviation of each channel, by which pixels in [0, 1] are standardised."""

    mean: list[Number]
    std: list[Number]


class TaskHeadDescription(Document):
    """A task's own output head, in the scenario where each task has one.

    Attributes:
        classes: its classes in the order of its outputs.
        task: number of the task.
    """

    classes: list[str]
    task: int


class NetworkFamilyDescription(Document):
    """The network that a method made from the architecture, such as one with adapters or several
    experts.

    Attributes:
        family: the network's family. Further fields have what the family needs to rebuild it.
    """

    family: str
