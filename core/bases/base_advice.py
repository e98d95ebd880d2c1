"""Advice about a base that does not fit: in words, and as a request that would be accepted.

All advice is derived from tensor names and shapes. A stem or a patch size changes only one or two
tensors, so a file that differs in these alone fits once the architecture states them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

from core.contract.base import UploadedBaseDescription
from core.contract.error import FittingBase
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.errors import BaseInvalid
from perennial.steps import LEFT_OPEN, ApiRequestForAdvice

Shapes = Mapping[str, Sequence[int]]

SMALL_IMAGE = 64
"""Largest side in pixels for which stems are small by default."""
LARGE_IMAGE = 224
"""Side in pixels of the images that torchvision's checkpoints were trained on."""
_STEMS = {
    "resnet": ("conv1.weight", {3: "small", 7: "standard"}),
    "convnext": ("features.0.0.weight", {2: "small", 4: "standard"}),
}
"""Name of the stem's tensor for each family, and the stem that each kernel size means."""
# The standard stem and the stages after it divide the side by 32 in all.
_CONVNEXT_STANDARD_NEEDS = 32
_PATCHES, _POSITIONS = "conv_proj.weight", "encoder.pos_embedding"
# Pickles of protocols 0 and 1 have no such mark; PyTorch writes protocol 2.
SAVE = (
    "from safetensors.torch import save_file\n"
    "save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, "
    '"weights.safetensors")'
)
"""The two lines of Python that make a safetensors file of a model in memory."""
_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))


@dataclass(frozen=True)
class FittingArchitectureAdvice:
    """Advice for an uploaded base: an architecture and image size that it fits, and why it did not
    fit those requested.

    Attributes:
        field: field to state in the request, such as `architecture.stem`.
        why: a sentence with the reason.
        otherwise: another possible request, as a sentence, or empty.
    """

    architecture: ArchitectureChoice
    image: ImageOut
    field: str
    why: str
    otherwise: str = ""

    def make_error(self, fields: Sequence[Mapping[str, str]]) -> BaseInvalid:
        """Return the error that refuses an uploaded base, with the advice on an architecture that
        fits.

        Args:
            fields: field errors of the tensors.
        """
        detail = (
            f"{self.why} Send the file as POST "
            f"/v1/bases?{format_base_upload_query(self.architecture, self.image)} and create the model with "
            f"{format_model_creation_request(self.architecture, self.image)}.{self.otherwise}"
        )
        head, _, key = self.field.partition(".")
        chosen: Mapping[str, object] = self.architecture if head == "architecture" else self.image
        value = json.dumps(chosen[key])
        named = [{"field": self.field, "message": f"{value} fits the file"}, *fields]
        fits: FittingBase = {
            "architecture": self.architecture,
            "image": self.image,
            "query": format_base_upload_query(self.architecture, self.image),
        }
        return BaseInvalid(detail, fields=named[:20], extra={"fits": fits})


def advise_on_wrong_stem_or_patch_size(
    architecture: ArchitectureChoice, image: ImageOut, family: str, shapes: Shapes, expected: Shapes
) -> FittingArchitectureAdvice | None:
    """Return the architecture that an uploaded file fits, if only the stem or the patch size was
    stated wrongly.

    Args:
        family: family of the architecture.
        shapes, expected: shapes by name, without tensors that are optional or ignored.

    Returns:
        The advice, or None if the file differs in another way.
    """
    # Other names mean another network, which no stem or patch size turns into this one.
    if set(shapes) != set(expected):
        return None
    wrong = {name for name in shapes if list(shapes[name]) != list(expected[name])}
    if family in _STEMS and wrong == {_STEMS[family][0]}:
        return _advise_on_network_stem(family, architecture, image, shapes, expected)
    if family == "vit" and wrong and wrong <= {_PATCHES, _POSITIONS}:
        return _advise_on_patch_size(architecture, image, shapes)
    return None


def format_base_upload_query(architecture: ArchitectureChoice, image: ImageOut) -> str:
    """Return the query of `POST /v1/bases` for an architecture and image.

    An architecture without other settings is given by its name alone.
    """
    settings = {key: value for key, value in architecture.items() if value not in ("auto", None)}
    text = (
        str(settings["name"])
        if set(settings) == {"name"}
        else json.dumps(settings, separators=(",", ":"))
    )
    return urlencode(
        {"architecture": text, "image_size": image["size"], "channels": image["channels"]}
    )


def format_model_creation_request(
    architecture: ArchitectureChoice, image: ImageOut, base: object = LEFT_OPEN
) -> str:
    """Format the request that creates a model with an architecture and image, on a base."""
    pixels = {"size": image["size"], "channels": image["channels"]}
    fields = {"name": LEFT_OPEN, "base": base, "architecture": architecture, "image": pixels}
    return str(ApiRequestForAdvice("POST", "/v1/models", body=fields))


def describe_architecture_and_image_in_words(
    architecture: ArchitectureChoice, image: ImageOut
) -> str:
    """Describe an architecture and image in plain words."""
    settings = [
        f"{key} {json.dumps(value)}" for key, value in architecture.items() if key != "name"
    ]
    hyper = f" ({', '.join(settings)})" if settings else ""
    channels = "1 channel" if image["channels"] == 1 else f"{image['channels']} channels"
    return (
        f"{architecture['name']}{hyper} and images of {image['size']} × {image['size']} pixels "
        f"in {channels}"
    )


def explain_architecture_mismatch_of_base(
    base: UploadedBaseDescription, architecture: ArchitectureChoice, image: ImageOut
) -> str:
    """Explain why a model cannot start from a base of another architecture or image, and what to
    send instead.

    Args:
        base: architecture of the base with its `image`.
        architecture, image: those of the model.
    """
    base_architecture = get_base_architecture(base)
    return (
        f"The base was uploaded for {describe_architecture_and_image_in_words(base_architecture, base['image'])}; "
        f"the model has {describe_architecture_and_image_in_words(architecture, image)}. "
        f"Create the model with {format_model_creation_request(base_architecture, base['image'])}, or "
        f"upload a file that fits the model to POST /v1/bases?{format_base_upload_query(architecture, image)}."
    )


def get_base_architecture(base: UploadedBaseDescription) -> ArchitectureChoice:
    """Return the architecture that a base was uploaded for, without its images and head."""
    other_fields = ("image", "normalise", "classifier")
    return cast(
        ArchitectureChoice, {key: value for key, value in base.items() if key not in other_fields}
    )


def have_same_image_size_and_channels(image: ImageOut, other: ImageOut) -> bool:
    """Return True if two networks read images of the same shape, however cropped and resized."""
    return (image["size"], image["channels"]) == (other["size"], other["channels"])


def refuse_pytorch_or_archive_file(
    path: Path, architecture: ArchitectureChoice, family: str
) -> None:
    """Refuse a file of PyTorch's own format, or another archive, and say how to convert it.

    Args:
        family: family of the architecture; empty for a classifier, whose head must stay.

    Raises:
        BaseInvalid: the file is a pickle or a zip archive.
    """
    with path.open("rb") as file:
        start = file.read(4096)
    # A zip by PyTorch begins with its member data.pkl, so its first bytes suffice.
    archive = start.startswith(b"PK\x03\x04")
    if start.startswith(_PICKLES) or (archive and b"data.pkl" in start):
        convert = f"load the model where you trust the file, run these two lines:\n{SAVE}\n"
        if family in ("resnet", "vit", "convnext"):
            name = architecture["name"]
            convert = (
                f"convert it with `python -m tools.import_torchvision {name} FILE.pth "
                f"OUT.safetensors`. "
            )
        raise BaseInvalid(
            "This is a pickled PyTorch file (.pth, .pt). A pickle can run code and is never read "
            f"here: {convert}Upload the new file."
        )
    if archive:
        raise BaseInvalid("This is a zip archive; a base is a safetensors file.")


def _replace_architecture_hyper_parameters(
    architecture: ArchitectureChoice, **hyper: str | int
) -> ArchitectureChoice:
    return cast(ArchitectureChoice, {**architecture, **hyper})


def _format_channel_count(count: int) -> str:
    return "1 channel" if count == 1 else f"{count} channels"


def _advise_on_network_stem(
    kind: str, architecture: ArchitectureChoice, image: ImageOut, shapes: Shapes, expected: Shapes
) -> FittingArchitectureAdvice | None:
    name, stems = _STEMS[kind]
    shape, usual = shapes[name], expected[name]
    # Only grey and RGB images and square kernels can be asked for.
    if len(shape) != 4 or shape[0] != usual[0] or shape[2] != shape[3] or shape[1] not in (1, 3):
        return None
    stem, channels, size = stems.get(shape[2]), shape[1], image["size"]
    if stem is None:
        return None
    if shape[2] == usual[2]:
        why = (
            f"The file's first layer ({name}) reads {_format_channel_count(channels)}, the images "
            f"have {usual[1]}."
        )
        return FittingArchitectureAdvice(
            architecture, {**image, "channels": channels}, "image.channels", why
        )
    large = stem == "standard"
    why = (
        f"The file has the {shape[2]}×{shape[2]} stem ({name}) of images "
        f"{'above' if large else 'up to'} {SMALL_IMAGE} pixels; images of {size} pixels were asked "
        f"for with a {usual[2]}×{usual[2]} one."
    )
    stated = _replace_architecture_hyper_parameters(architecture, stem=stem)
    larger: ImageOut = {"size": LARGE_IMAGE, "channels": channels}
    if large and size <= SMALL_IMAGE:
        by_size = _replace_architecture_hyper_parameters(architecture, stem="auto")
        if kind == "convnext" and size < _CONVNEXT_STANDARD_NEEDS:
            return FittingArchitectureAdvice(by_size, larger, "image.size", why)
        otherwise = (
            f" Where more pixels are there, {LARGE_IMAGE} are what such a stem was made for: "
            f"POST /v1/bases?{format_base_upload_query(by_size, larger)} and "
            f"{format_model_creation_request(by_size, larger)}."
        )
        return FittingArchitectureAdvice(
            stated, {**image, "channels": channels}, "architecture.stem", why, otherwise
        )
    return FittingArchitectureAdvice(
        stated, {**image, "channels": channels}, "architecture.stem", why
    )


def _advise_on_patch_size(
    architecture: ArchitectureChoice, image: ImageOut, shapes: Shapes
) -> FittingArchitectureAdvice | None:
    shape, positions = shapes[_PATCHES], shapes[_POSITIONS]
    if len(shape) != 4 or shape[2] != shape[3] or shape[1] not in (1, 3) or len(positions) != 3:
        return None
    patch, channels = shape[2], shape[1]
    # One position belongs to the class token, not to a patch.
    side = math.isqrt(max(0, positions[1] - 1))
    # Patches fill a square, and advice beyond the limits of a request would be refused.
    if side**2 != positions[1] - 1 or not 1 <= patch <= 64 or not 8 <= side * patch <= 1024:
        return None
    size = image["size"] if image["size"] // patch == side else side * patch
    why = (
        f"The file has patches of {patch}×{patch} pixels ({_PATCHES}) and {side}×{side} positions "
        f"for them ({_POSITIONS}): images of {side * patch} pixels. Other patches, or images of "
        f"another size, were asked for."
    )
    fitting: ImageOut = {"size": size, "channels": channels}
    return FittingArchitectureAdvice(
        _replace_architecture_hyper_parameters(architecture, patch=patch),
        fitting,
        "architecture.patch",
        why,
    )
