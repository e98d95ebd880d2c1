"""Uploaded bases."""

from typing_extensions import TypedDict

from core.contract.responses.architecture import ArchitectureChoice, ImageOut, NormalisationOut


class ModelRef(TypedDict):
    """A reference to a model: its id and name."""

    id: str
    name: str


class BaseOut(TypedDict):
    """An uploaded base: weights that models may start from.

    - `image`: the images that it was uploaded for; null if they were not given.
    - `normalise`: their statistics; null if they are unknown (then .5 and .25 are used).
    - `classes`: names of the rows of its classifier; null for a base without one.
    """

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: ImageOut | None
    normalise: NormalisationOut | None
    classes: list[str] | None
    created_at: str


class ListedBase(BaseOut):
    """An uploaded base in a list, with the models that start from it."""

    models: list[ModelRef]


class BasePage(TypedDict):
    """A page of uploaded bases, newest first."""

    items: list[ListedBase]
    next_cursor: str | None
