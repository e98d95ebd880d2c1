"""The images that a model reads.

Each value comes from the request, else from the images that the named weights were trained on, else
from the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ImageOut, NormalisationOut
from core.contract.responses.model_change import RequestedImageSettings
from core.recipe.pretrained import (
    find_pretrained_weights_of_architecture,
    get_normalisation_of_weights,
    get_pretraining_image_format,
)

IMAGE: ImageOut = {"size": 32, "channels": 3}


@dataclass(frozen=True)
class ImageFormatAndNormalisation:
    """A model's image format (size, channels) and pixel statistics to normalise images with.

    Attributes:
        image: size, channels and preparation of the images that the model reads.
        normalise: statistics of the named weights' training images; None if no weights are named.
    """

    image: ImageOut
    normalise: NormalisationOut | None


DECODING = 2
"""Decoding version of new models: how files become images (`core.ingest.decoding.resizing.LATEST`)."""


def resolve_image_settings(
    catalogue: RecipeCatalogue,
    architecture: str | Mapping[str, Any],
    requested_settings: RequestedImageSettings,
) -> ImageFormatAndNormalisation:
    """Resolve the image settings for an architecture that has not been checked yet.

    Raises:
        Invalid: the architecture names weights that do not exist.
    """
    weights = find_pretrained_weights_of_architecture(catalogue, architecture)
    image: ImageOut = {**IMAGE} if weights is None else get_pretraining_image_format(weights)
    # 0 stands for a value that the request leaves open (`core.bases.bases`).
    image["size"] = requested_settings.get("size") or image["size"]
    image["channels"] = requested_settings.get("channels") or image["channels"]
    return ImageFormatAndNormalisation(
        image, None if weights is None else get_normalisation_of_weights(weights)
    )
