"""timm's pretrained weights by name, checked against the catalogue, and the images that they were learned on."""

from difflib import get_close_matches
from typing import Any

from core.errors import Invalid
from core.protocol.answers.architecture import ImageOut, NormalisationOut
from core.protocol.catalogue import Catalogue
from core.protocol.pretrained import Pretrained, pretrained_of

ARCHITECTURE = "timm"
SHORT = f"{ARCHITECTURE}/"
"""What the short form of such an architecture begins with."""
FIELD = "architecture.model"
NEAREST = 3


def weights_of(catalogue: Catalogue, architecture: Any) -> Pretrained | None:
    """The weights that an architecture names, in its short or its long form; None for another architecture.

    Raises:
        Invalid: there are no such weights, with the nearest names; or they cannot be used, with the reason.
    """
    if isinstance(architecture, str):
        name: Any = architecture.removeprefix(SHORT) if architecture.startswith(SHORT) else None
    else:
        name = architecture.get("model") if architecture.get("name") == ARCHITECTURE else None
    if not isinstance(name, str):
        return None
    row = catalogue["pretrained"].get(name)
    if row is not None:
        return pretrained_of(name, row)
    refused = catalogue["unusable"].get(name)
    if refused is not None:
        raise _invalid(f"The network of {name} cannot be used here: {refused}.", refused)
    near = _near(catalogue, name)
    raise _invalid(
        f"timm has no pretrained weights {name!r}; did you mean {near}? GET /v1/architectures recommends a dozen.",
        f"did you mean {near}?",
    )


def image_of(weights: Pretrained) -> ImageOut:
    """The images that they were learned on."""
    return {
        "size": weights.size,
        "channels": weights.channels,
        "crop": float(weights.crop),
        "interpolation": weights.interpolation,
    }


def normalisation_of(weights: Pretrained) -> NormalisationOut:
    """The statistics of these images."""
    return {"mean": [float(m) for m in weights.mean], "std": [float(s) for s in weights.std]}


def image_errors(weights: Pretrained, image: ImageOut) -> list[tuple[str, str]]:
    """Why its network does not take such images, by field."""
    errors = []
    if image["channels"] != weights.channels:
        grey = "; grey images are taken, too" if weights.channels == 3 else ""
        errors.append(("image.channels", f"{weights.name} reads {weights.channels} channels{grey}"))
    if not weights.takes(image["size"]):
        errors.append(("image.size", f"{weights.name} takes images of {weights.sizes()}"))
    return errors


def _near(catalogue: Catalogue, name: str) -> str:
    """The names that are most like it: those of the same architecture first."""
    known = sorted(catalogue["pretrained"])
    same = [other for other in known if other.partition(".")[0] == name.partition(".")[0]]
    found = (
        same[:NEAREST]
        or get_close_matches(name, known, NEAREST)
        or sorted(catalogue["recommended"])[:NEAREST]
    )
    return ", ".join(found)


def _invalid(detail: str, message: str) -> Invalid:
    return Invalid(detail, fields=[{"field": FIELD, "message": message}])
