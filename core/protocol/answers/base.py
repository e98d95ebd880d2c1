"""Uploaded bases."""

from typing_extensions import TypedDict

from core.protocol.answers.architecture import ArchitectureChoice, ImageOut


class BaseOut(TypedDict):
    """An uploaded base; `image`: the images that it was uploaded for, null where that was not said."""

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: ImageOut | None
    created_at: str
