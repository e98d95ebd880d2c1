"""The images that a model reads: as the request says, else as the named weights were learned, else the default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.protocol.answers.architecture import ImageOut, NormalisationOut
from core.protocol.answers.model_change import AskedImage
from core.protocol.catalogue import Catalogue
from core.recipe.pretrained import image_of, normalisation_of, weights_of

IMAGE: ImageOut = {"size": 32, "channels": 3}


@dataclass(frozen=True)
class Images:
    """`image`: what the model reads; `normalise`: statistics of the named weights' images; None: no weights
    are named."""

    image: ImageOut
    normalise: NormalisationOut | None


DECODING = 2
"""Of new models: number of the way in which files become images (`core.ingest.resizing.LATEST`)."""


def images_of(catalogue: Catalogue, architecture: str | Mapping[str, Any], asked: AskedImage) -> Images:
    """The images for an architecture that is not checked yet.

    Raises:
        Invalid: it names weights that do not exist.
    """
    weights = weights_of(catalogue, architecture)
    image: ImageOut = {**IMAGE} if weights is None else image_of(weights)
    image["size"] = asked.get("size") or image["size"]
    image["channels"] = asked.get("channels") or image["channels"]
    return Images(image, None if weights is None else normalisation_of(weights))
