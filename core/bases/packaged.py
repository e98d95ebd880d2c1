"""Models that start from a packaged base: the blob, and its entry in the manifest of version 0."""

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path

from core.contract.architecture import Normalisation
from core.contract.manifest import BaseOrigin, StoredVersionPart
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.errors import Invalid
from core.lineage.version_zero import Origin
from core.packaged import imagenet_base, packaged_base
from core.storage import Blobs

LICENCE = "apache-2.0"


def store_base_blob_if_packaged(blobs: Blobs, base: object, image: ImageOut) -> None:
    """Store the weights of a base that is packaged with the service, unless they are stored
    already.
    """
    if base == packaged_base.PACKAGED and not blobs.has(
        _build_packaged_backbone_part(image["channels"]).sha256
    ):
        # The store takes files, and the weights for grey images exist in memory alone.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "base.safetensors"
            path.write_bytes(packaged_base.load_packaged_base_weights(image["channels"]))
            blobs.put_file(path, move=True)


def build_version_zero_of_packaged_base(
    base: str, architecture: ArchitectureChoice, image: ImageOut
) -> tuple[StoredVersionPart, Origin, Normalisation]:
    """Return what version 0 of a model on a packaged base consists of: its part, origin and pixel
    statistics.

    Raises:
        Invalid: there is no such packaged base, or it has another architecture; the message gives
            the body to send.
    """
    if base != packaged_base.PACKAGED:
        known_names = f"{packaged_base.PACKAGED} and {imagenet_base.NAME}"
        message = f"There is no base {base!r}; those by name are {known_names}."
        raise Invalid(message, fields=[{"field": "base", "message": message}])
    fitting = packaged_base.load_packaged_base_description(base).architecture
    if architecture != fitting:
        message = (
            f'{base} fits "architecture": {json.dumps(fitting)}; the model has '
            f"{json.dumps(architecture)}."
        )
        raise Invalid(message, fields=[{"field": "base", "message": message}])
    part = _build_packaged_backbone_part(image["channels"])
    origin = BaseOrigin(name=base, licence=LICENCE, sha256=part.sha256, bytes=part.bytes)
    return (
        part,
        {"base": origin},
        packaged_base.load_packaged_base_normalisation(image["channels"], base),
    )


# Cached, since each new model would otherwise read and hash the weights again.
@cache
def _build_packaged_backbone_part(channels: int) -> StoredVersionPart:
    content = packaged_base.load_packaged_base_weights(channels)
    return StoredVersionPart(
        name="base", type="base", sha256=hashlib.sha256(content).hexdigest(), bytes=len(content)
    )
