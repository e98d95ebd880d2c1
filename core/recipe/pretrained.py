"""timm's pretrained weights by name, and the images that they were trained on."""

from difflib import get_close_matches
from typing import Any

from core.contract.catalogue import RecipeCatalogue
from core.contract.pretrained import PretrainedWeights, build_pretrained_weights_from_row
from core.contract.responses.architecture import ImageOut, NormalisationOut
from core.errors import Invalid

ARCHITECTURE = "timm"
SHORT = f"{ARCHITECTURE}/"
"""Prefix of the short form of a timm architecture."""
FIELD = "architecture.model"
NEAREST = 3


def find_pretrained_weights_of_architecture(
    catalogue: RecipeCatalogue, architecture: Any
) -> PretrainedWeights | None:
    """Find the pretrained weights that an architecture names, or None if it is not a timm
    architecture.

    Raises:
        Invalid: the weights do not exist (the message suggests the nearest names) or cannot be used
            (it says why).
    """
    if isinstance(architecture, str):
        name: Any = architecture.removeprefix(SHORT) if architecture.startswith(SHORT) else None
    else:
        name = architecture.get("model") if architecture.get("name") == ARCHITECTURE else None
    if not isinstance(name, str):
        return None
    row = catalogue["pretrained"].get(name)
    if row is not None:
        return build_pretrained_weights_from_row(name, row)
    refused = catalogue["unusable"].get(name)
    if refused is not None:
        raise _build_weights_name_error(
            f"The network of {name} cannot be used here: {refused}.", refused
        )
    near = _suggest_similar_weight_names(catalogue, name)
    raise _build_weights_name_error(
        f"timm has no pretrained weights {name!r}; did you mean {near}? GET /v1/architectures "
        f"recommends a dozen.",
        f"did you mean {near}?",
    )


def get_pretraining_image_format(weights: PretrainedWeights) -> ImageOut:
    """Return the image format that pretrained weights were trained on."""
    return {
        "size": weights.size,
        "channels": weights.channels,
        "crop": float(weights.crop),
        "interpolation": weights.interpolation,
    }


def get_normalisation_of_weights(weights: PretrainedWeights) -> NormalisationOut:
    """Return the pixel mean and standard deviation that pretrained weights were trained with."""
    return {"mean": [float(m) for m in weights.mean], "std": [float(s) for s in weights.std]}


def find_image_settings_unfit_for_weights(
    weights: PretrainedWeights, image: ImageOut
) -> list[tuple[str, str]]:
    """Return (field, message) for each image setting that does not fit the pretrained weights."""
    errors = []
    if image["channels"] != weights.channels:
        grey = "; grey images are taken, too" if weights.channels == 3 else ""
        errors.append(("image.channels", f"{weights.name} reads {weights.channels} channels{grey}"))
    if not weights.accepts_image_size(image["size"]):
        errors.append(
            ("image.size", f"{weights.name} takes images of {weights.describe_image_sizes()}")
        )
    return errors


def _suggest_similar_weight_names(catalogue: RecipeCatalogue, name: str) -> str:
    """Suggest names of pretrained weights similar to a wrong one, comma-separated."""
    names = sorted(catalogue["pretrained"])
    same_architecture = [
        candidate for candidate in names if candidate.partition(".")[0] == name.partition(".")[0]
    ]
    nearest = (
        same_architecture[:NEAREST]
        or get_close_matches(name, names, NEAREST)
        or sorted(catalogue["recommended"])[:NEAREST]
    )
    return ", ".join(nearest)


def _build_weights_name_error(detail: str, message: str) -> Invalid:
    return Invalid(detail, fields=[{"field": FIELD, "message": message}])
