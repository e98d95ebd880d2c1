"""Safetensors download: one zip of weights, configuration and model card.

It is a pure function of the manifest (stored entries, fixed order, fixed times), so that building
it again gives the same digest.
"""

import json
import zipfile
from pathlib import Path

from core.export import model_card
from core.export.card_code import find_architecture_family
from core.export.format import DownloadFormat, VersionToExport
from core.export.image_reader import build_image_reader_files
from core.export.zip_entries import add_text_to_zip, add_zip_entry
from core.files.merging import MergedSafetensorsFile

_BASE_PART = "base"
_CLASSIFIERS = {"dne": "head.", "resnet": "fc.", "vit": "heads.", "convnext": "classifier.2."}
"""Architecture family → prefix of the classifier's names in an uploaded base.

No backbone has these tensors.
"""


class SafetensorsZipFormat(DownloadFormat):
    """The safetensors download format: all tensors in one file, with configuration and model
    card.
    """

    name = "safetensors"
    media_type = "application/zip"
    suffix = "zip"

    def write_download(self, target: Path, version: VersionToExport) -> None:
        """Write the zip of a version's weights, copying the tensors of one part after another.

        Raises:
            StoredObjectDamaged: the parts do not fit together.
            DamagedPartFileError: a part's bytes do not match its digest.
        """
        classifier = _CLASSIFIERS.get(
            find_architecture_family(version.manifest, version.catalogue) or ""
        )

        def get_merged_tensor_name(name: str) -> str | None:
            """Return a base tensor's name in the merged weights file, or None for its classifier.

            An uploaded base has the backbone's own names.
            """
            return None if classifier and name.startswith(classifier) else f"backbone.{name}"

        # Parts that a job wrote have the network's names already, so `str` leaves them alone.
        merged = MergedSafetensorsFile(
            [
                (p.path, p.sha256, get_merged_tensor_name if p.name == _BASE_PART else str)
                for p in version.parts
            ]
        )
        config = json.dumps(
            model_card.build_download_config(version), ensure_ascii=False, indent=2, sort_keys=True
        )
        # Stored: weights hardly shrink, and another release of zlib would give other bytes.
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            add_zip_entry(archive, "model.safetensors", merged.size, merged.read_chunks())
            add_text_to_zip(archive, "config.json", config + "\n")
            add_text_to_zip(archive, "README.md", model_card.render_download_readme(version))
            for name, text in build_image_reader_files(version.manifest.image).items():
                add_text_to_zip(archive, name, text)
