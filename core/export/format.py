"""What a download format is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from core.protocol.answers.sure import SureOut
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

    catalogue: methods and architectures, see `core.catalogue`. made: folder with what a job process has made of the
    version, for formats that are made by jobs. sure: from when on an answer is sure; None: the model promises nothing.
    """

    manifest: Manifest
    parts: Sequence[PartFile]
    catalogue: Catalogue
    made: Path | None = None
    sure: SureOut | None = None


class Format:
    """One form in which a version is downloaded.

    name: what `?format=` says, at most 20 characters; media_type: of the answer; suffix: of the file's name.
    by_job: a job of a worker makes it (`core.work.kinds.export`), and not the API at once.
    """

    name: ClassVar[str]
    media_type: ClassVar[str]
    suffix: ClassVar[str]
    by_job: ClassVar[bool] = False

    def refusal(self, manifest: Manifest) -> str | None:
        """Why a version cannot be had in this format, in a sentence; None where it can."""
        return None

    def write(self, target: Path, version: Version) -> None:
        """Write the download to `target`. The same version must give the same bytes: they are named by their
        digest.

        Raises:
            ExportUnavailable: this version cannot be had in this format.
            StoreCorrupt: the parts do not fit together.
            DamagedPart: a part has another digest than its name says; the file is thrown away.
        """
        raise NotImplementedError
