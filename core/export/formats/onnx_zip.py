"""ONNX download: one zip for programs without PyTorch.

It has an ONNX graph from pixels to probabilities, labels, and code that runs the graph. A job
process makes and checks the graph (`core.learn.onnx`), which is packed here. The same graph and
version give the same bytes.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from core.errors import StoreCorrupt
from core.export import model_card, onnx_card
from core.export.format import Format, Version
from core.export.image_reader import reader_files
from core.export.zip_entries import add, add_text
from core.protocol.export_job import GRAPH, GRAPH_DATA
from core.protocol.manifest import Manifest

_COPY_BYTES = 1 << 20


class OnnxZip(Format):
    """A graph that a job has made, with labels, configuration and model card."""

    name = "onnx"
    media_type = "application/zip"
    suffix = "onnx.zip"
    by_job = True

    def refusal(self, manifest: Manifest) -> str | None:
        """Return a sentence for a version without classes, which has no probabilities to export."""
        if manifest.version == 0 or not onnx_card.labels(manifest):
            return (
                f"Version {manifest.version} has learned no classes yet, so it has no probabilities to export. "
                "Submit a task first, or name a later version."
            )
        return None

    def write(self, target: Path, version: Version) -> None:
        """Write the zip. Its entries are stored, in a fixed order and with fixed times.

        Raises:
            StoreCorrupt: no job has made a graph.
        """
        if version.made is None:
            raise StoreCorrupt("An ONNX download is made of the graph that a job has left.")
        graph, data = version.made / GRAPH, version.made / GRAPH_DATA
        files = [graph, data] if data.exists() else [graph]
        config = {**model_card.config(version), "onnx": onnx_card.described(version.manifest, version.sure)}
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for file in files:
                add(archive, file.name, file.stat().st_size, _chunks(file))
            add_text(archive, "labels.json", _json(onnx_card.labels(version.manifest)))
            add_text(archive, "config.json", _json(config, sort=True))
            add_text(archive, "README.md", onnx_card.card(version.manifest))
            for name, text in reader_files(version.manifest.image).items():
                add_text(archive, name, text)


def _json(value: object, *, sort: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=sort) + "\n"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_COPY_BYTES):
            yield chunk
