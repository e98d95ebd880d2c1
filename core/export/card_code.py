"""The code of a model card, composed of the files of `core/export/loading`.

The code needs torch and safetensors (and torchvision for torchvision's families). The manifest
alone determines the files: the architecture names its family, the network its class, and a method
may have its own inference. All of them are looked up in the catalogue.
"""

import re
from pathlib import Path

from core.contract.architecture import ImageSettings
from core.contract.catalogue import RecipeCatalogue
from core.contract.manifest import Manifest
from core.export.image_reader import FIRST, get_image_decoding_version

_FOLDER = Path(__file__).parent / "loading"
_BEGINS = "# The card begins here.\n"
_PLAIN = "Network"
_USUAL_SIDE = (
    "side = size if size <= 96 else round(size * 256 / 224)  # larger images keep a "
    "margin, which is cut off"
)
_MODELS = "from core.export.loading.backbones.torchvision import models"


def find_architecture_family(manifest: Manifest, catalogue: RecipeCatalogue) -> str | None:
    """Return the family of a manifest's architecture, or None if the catalogue lacks it."""
    entry = catalogue["architectures"].get(manifest.architecture.name)
    return None if entry is None else entry["family"]


def build_loading_code(manifest: Manifest, catalogue: RecipeCatalogue) -> str | None:
    """Build Python code for the model card that rebuilds the network from a download, or None.

    None means that no file in `loading` covers the architecture or the network.
    """
    backbone = _read_backbone_source_code(
        find_architecture_family(manifest, catalogue) or "unknown"
    )
    network = _read_optional_model_card_code(
        f"networks/{_choose_inference_code_name(manifest, catalogue)}"
    )
    if backbone is None or network is None:
        return None
    plain = _read_required_model_card_code("networks/plain")
    # The class of the network comes last in its file, after the modules that it is made of.
    name = re.findall(r"^class (\w+)", network, re.MULTILINE)[-1]
    load = _read_required_model_card_code("load").replace(f"{_PLAIN}(tensors)", f"{name}(tensors)")
    return "\n\n".join(
        [
            _read_required_model_card_code("start"),
            backbone,
            plain,
            *([] if network == plain else [network]),
            load,
        ]
    )


def build_image_reading_code(image: ImageSettings) -> str:
    """Build Python code for the model card that reads an image file as the service does.

    It follows the code of `build_loading_code` in a card.
    """
    if get_image_decoding_version(image) != FIRST:
        return _read_required_model_card_code("read_images_2")
    code = _read_required_model_card_code("read_images")
    if image.crop is not None:
        code = _replace_single_occurrence(
            code, _USUAL_SIDE, f"side = int(size / {image.crop} + 1e-9)  # the rest is cut off"
        )
    if image.interpolation is not None:
        code = _replace_single_occurrence(
            code, "Resampling.BILINEAR", f"Resampling.{image.interpolation.upper()}"
        )
    return code


def _replace_single_occurrence(code: str, old: str, new: str) -> str:
    # A file that was reworded would otherwise give a card that silently reads images differently.
    assert code.count(old) == 1, f"core/export/loading/read_images.py has no {old!r}"
    return code.replace(old, new)


def _choose_inference_code_name(manifest: Manifest, catalogue: RecipeCatalogue) -> str:
    """Choose the inference code for a model card: the method's own, or that of the network family.

    It is the method's own if its state is stored, else the network's.
    """
    method = None if manifest.method is None else catalogue["methods"].get(manifest.method.name)
    stored = {part.type for part in manifest.parts}
    if (
        method is not None
        and method["inference"]
        and not stored.isdisjoint(method["predicts_with"])
    ):
        return str(method["inference"])
    return "plain" if manifest.network is None else manifest.network.family


def _read_backbone_source_code(name: str) -> str | None:
    code = _read_optional_model_card_code(f"backbones/{name}")
    if code is None or _MODELS not in _get_model_card_code_path(f"backbones/{name}").read_text(
        encoding="utf-8"
    ):
        return code
    # This number of blank lines keeps the bytes of older cards.
    return "\n\n\n".join([_read_required_model_card_code("backbones/torchvision"), code])


def _read_optional_model_card_code(name: str) -> str | None:
    """Read the part of a code file that goes into a model card, or None if there is no such
    file.
    """
    path = _get_model_card_code_path(name)
    if not path.is_file():
        return None
    # Before the mark are imports that only this repository has.
    return path.read_text(encoding="utf-8").partition(_BEGINS)[2].strip("\n") + "\n"


def _read_required_model_card_code(name: str) -> str:
    code = _read_optional_model_card_code(name)
    assert code is not None, f"core/export/loading lacks {name}"
    return code


def _get_model_card_code_path(name: str) -> Path:
    # Names in the catalogue may have hyphens, names of modules may not.
    return _FOLDER / f"{name.replace('-', '_')}.py"
