"""ONNX download: one zip for programs without PyTorch.

It has an ONNX graph from pixels to probabilities, labels, and code that runs the graph. A job
process makes and checks the graph (`core.learning.export`), which is packed here. The same graph and
version give the same bytes.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from core.contract.jobs.export_job import GRAPH, GRAPH_DATA
from core.contract.manifest import Manifest
from core.errors import StoredObjectDamaged
from core.export import model_card, onnx_card
from core.export.format import DownloadFormat, VersionToExport
from core.export.image_reader import build_image_reader_files
from core.export.zip_entries import add_text_to_zip, add_zip_entry

_COPY_BYTES = 1 << 20


class OnnxZipFormat(DownloadFormat):
    """The ONNX download format: a zip of the graph, labels, configuration and model card."""

    name = "onnx"
    media_type = "application/zip"
    suffix = "onnx.zip"
    by_job = True

    def explain_unavailability(self, manifest: Manifest) -> str | None:
        """Explain that a version without classes has no probabilities to export; None for
        others.
        """
        if manifest.version == 0 or not onnx_card.collect_labels_of_graph_outputs(manifest):
            return (
                f"Version {manifest.version} has learned no classes yet, so it has no "
                "probabilities to export. Submit a task first, or name a later version."
            )
        return None

    def write_download(self, target: Path, version: VersionToExport) -> None:
        """Write the zip of an ONNX graph and its files, in a fixed order and with fixed times.

        Raises:
            StoredObjectDamaged: no job has made a graph.
        """
        if version.made is None:
            raise StoredObjectDamaged("An ONNX download is made of the graph that a job has left.")
        graph, data = version.made / GRAPH, version.made / GRAPH_DATA
        # Weights near 2 GiB do not fit into the graph's file, and lie beside it.
        files = [graph, data] if data.exists() else [graph]
        config = {
            **model_card.build_download_config(version),
            "onnx": onnx_card.build_graph_signature(version.manifest, version.sure),
        }
        # Stored: weights hardly shrink, and another release of zlib would give other bytes.
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for file in files:
                add_zip_entry(archive, file.name, file.stat().st_size, _read_file_chunks(file))
            # Not sorted: the order is that of the graph's outputs and columns.
            add_text_to_zip(
                archive,
                "labels.json",
                _format_json_text(onnx_card.collect_labels_of_graph_outputs(version.manifest)),
            )
            add_text_to_zip(archive, "config.json", _format_json_text(config, sort=True))
            add_text_to_zip(archive, "README.md", onnx_card.render_onnx_readme(version.manifest))
            for name, text in build_image_reader_files(version.manifest.image).items():
                add_text_to_zip(archive, name, text)


def _format_json_text(value: object, *, sort: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=sort) + "\n"


def _read_file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_COPY_BYTES):
            yield chunk
