"""Uploaded bases."""

from typing_extensions import TypedDict

from core.protocol.answers.architecture import ArchitectureChoice, ImageOut, NormalisationOut


class BaseOut(TypedDict):
    """An uploaded base; `image`: the images that it was uploaded for, null where that was not said; `normalise`: their
    statistics, null where those are not known (then .5 and .25 are taken).
    """

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: ImageOut | None
    normalise: NormalisationOut | None
    created_at: str
