"""What a network is built from: its architecture, its images, and the scenario that it learns in."""

from typing import Literal

from pydantic import JsonValue

from core.protocol.answers.architecture import Interpolation
from core.protocol.document import Document, Number

Scenario = Literal["data", "task", "class"]


class Architecture(Document):
    """An architecture by its name; its hyper-parameters stand beside the name, as the catalogue's schema has them."""

    name: str

    @property
    def hyper(self) -> dict[str, JsonValue]:
        """The hyper-parameters by name."""
        return self.others()


class Image(Document):
    """Square images: `size` pixels a side, `channels` 1 or 3.

    crop: share of the resized image's shorter side that the centre crop keeps, in (0, 1]; None: all of it up to 96
    pixels, 224/256 above. interpolation: how images are resized; None: bilinear. decoding: number of the way in which
    files become images (`core.ingest.resizing`); None: the first.
    """

    size: int
    channels: int
    crop: Number | None = None
    interpolation: Interpolation | None = None
    decoding: int | None = None


class Normalisation(Document):
    """Mean and standard deviation of each channel's values, which lie in [0, 1]."""

    mean: list[Number]
    std: list[Number]


class Head(Document):
    """The head of a task, in the task scenario: its classes in the order of its outputs."""

    classes: list[str]
    task: int


class NetworkDescription(Document):
    """What a method made of the architecture's network: its family, and beside it what the family needs to
    rebuild it."""

    family: str
