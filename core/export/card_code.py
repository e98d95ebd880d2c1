"""The code of a model card, put together from the files of `core/export/loading`.

It needs torch and safetensors (torchvision for its families). Which files it is made of depends on the
manifest alone: the architecture names its family, the network what it is, and a method its own way to answer;
all of them are read from the catalogue.
"""

import re
from pathlib import Path

from core.export.image_reader import FIRST, decoding_of
from core.protocol.architecture import Image
from core.protocol.catalogue import Catalogue
from core.protocol.manifest import Manifest

_FOLDER = Path(__file__).parent / "loading"
_BEGINS = "# The card begins here.\n"
_PLAIN = "Network"
_USUAL_SIDE = (
    "side = size if size <= 96 else round(size * 256 / 224)  # larger images keep a margin, which is cut off"
)
_MODELS = "from core.export.loading.backbones.torchvision import models"


def family(manifest: Manifest, catalogue: Catalogue) -> str | None:
    """The family of the manifest's architecture, None for one that the catalogue does not know."""
    known = catalogue["architectures"].get(manifest.architecture.name)
    return None if known is None else known["family"]


def loading_code(manifest: Manifest, catalogue: Catalogue) -> str | None:
    """Python that rebuilds the network from the unpacked download; None where no file says how."""
    backbone = _backbone(family(manifest, catalogue) or "unknown")
    network = _card_part(f"networks/{_network(manifest, catalogue)}")
    if backbone is None or network is None:
        return None
    plain = _needed("networks/plain")
    name = re.findall(r"^class (\w+)", network, re.MULTILINE)[-1]
    load = _needed("load").replace(f"{_PLAIN}(tensors)", f"{name}(tensors)")
    return "\n\n".join([_needed("start"), backbone, plain, *([] if network == plain else [network]), load])


def image_code(image: Image) -> str:
    """Python that reads an image file as the service does; it follows the code that loads."""
    if decoding_of(image) != FIRST:
        return _needed("read_images_2")
    code = _needed("read_images")
    if image.crop is not None:
        code = _replaced(code, _USUAL_SIDE, f"side = int(size / {image.crop} + 1e-9)  # the rest is cut off")
    if image.interpolation is not None:
        code = _replaced(code, "Resampling.BILINEAR", f"Resampling.{image.interpolation.upper()}")
    return code


def _replaced(code: str, old: str, new: str) -> str:
    assert code.count(old) == 1, f"core/export/loading/read_images.py has no {old!r}"
    return code.replace(old, new)


def _network(manifest: Manifest, catalogue: Catalogue) -> str:
    """What the version answers with: its method's own code where it has the state for it, else its network."""
    method = None if manifest.method is None else catalogue["methods"].get(manifest.method.name)
    stored = {part.type for part in manifest.parts}
    if method is not None and method["inference"] and not stored.isdisjoint(method["predicts_with"]):
        return str(method["inference"])
    return "plain" if manifest.network is None else manifest.network.family


def _backbone(name: str) -> str | None:
    code = _card_part(f"backbones/{name}")
    if code is None or _MODELS not in _path(f"backbones/{name}").read_text(encoding="utf-8"):
        return code
    return "\n\n\n".join([_needed("backbones/torchvision"), code])  # so many lines since the first cards


def _card_part(name: str) -> str | None:
    """What a file gives to a card; None where there is no such file."""
    path = _path(name)
    if not path.is_file():
        return None
    return path.read_text(encoding="utf-8").partition(_BEGINS)[2].strip("\n") + "\n"


def _needed(name: str) -> str:
    found = _card_part(name)
    assert found is not None, f"core/export/loading lacks {name}"
    return found


def _path(name: str) -> Path:
    return _FOLDER / f"{name.replace('-', '_')}.py"
