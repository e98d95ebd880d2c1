"""What a download format is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from core.protocol.catalogue import Catalogue
from core.protocol.manifest import Manifest


@dataclass(frozen=True)
class PartFile:
    """One part of a version as a local safetensors file."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class Version:
    """What a download is made of: the manifest, and the parts that the version answers with, in the
    manifest's order.

    catalogue: methods and architectures, see `core.catalogue`.
    """

    manifest: Manifest
    parts: Sequence[PartFile]
    catalogue: Catalogue


class Format:
    """One form in which a version is downloaded.

    name: what `?format=` says, at most 20 characters; media_type: of the answer; suffix: of the file's name.
    """

    name: ClassVar[str]
    media_type: ClassVar[str]
    suffix: ClassVar[str]

    def write(self, target: Path, version: Version) -> None:
        """Write the download to `target`. The same version must give the same bytes: they are named by their
        digest.

        Raises:
            ExportUnavailable: this version cannot be had in this format.
            StoreCorrupt: the parts do not fit together.
            DamagedPart: a part has another digest than its name says; the file is thrown away.
        """
        raise NotImplementedError
