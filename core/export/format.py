"""The interface of download formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from core.contract.catalogue import RecipeCatalogue
from core.contract.manifest import Manifest
from core.contract.responses.versions.sure import SureOut


@dataclass(frozen=True)
class VersionPartFileToExport:
    """A part of a version to export, as a local safetensors file."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class VersionToExport:
    """A version to export: manifest, parts, catalogue and files made by the export job.

    Attributes:
        manifest: the version's manifest.
        parts: the parts that inference needs, in the manifest's order.
        catalogue: methods and architectures, see `core.recipe.catalogue`.
        made: folder with files that a job process made of the version, for formats with `by_job`.
        sure: threshold of sure answers; None if the model promises nothing.
    """

    manifest: Manifest
    parts: Sequence[VersionPartFileToExport]
    catalogue: RecipeCatalogue
    made: Path | None = None
    sure: SureOut | None = None


class DownloadFormat:
    """Base class of the file formats in which a version can be downloaded.

    Attributes:
        name: value of `?format=`, at most 20 characters.
        media_type: media type of the response.
        suffix: suffix of the file's name.
        by_job: whether a job of a worker makes the file (`core.execution.kinds.export`), instead of the
            API at once.
    """

    name: ClassVar[str]
    media_type: ClassVar[str]
    suffix: ClassVar[str]
    by_job: ClassVar[bool] = False

    def explain_unavailability(self, manifest: Manifest) -> str | None:
        """Explain why a version is not available in this format; None if it is."""
        return None

    def write_download(self, target: Path, version: VersionToExport) -> None:
        """Write a version's download file to `target` in this format.

        The same version must give the same bytes, because downloads are named by their digest.

        Raises:
            ExportUnavailable: this version is not available in this format.
            StoredObjectDamaged: the parts do not fit together.
            DamagedPartFileError: a part's bytes do not match its digest; the file must be
                discarded.
        """
        raise NotImplementedError
