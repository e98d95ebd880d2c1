"""The list of download formats. A new format is a file in `formats/` and a line here."""

from core.export.format import DownloadFormat
from core.export.formats.onnx_zip import OnnxZipFormat
from core.export.formats.safetensors_zip import SafetensorsZipFormat

_ALL: list[DownloadFormat] = [
    SafetensorsZipFormat(),
    OnnxZipFormat(),
]
FORMATS = {each.name: each for each in _ALL}
"""Formats by the value of `?format=`."""
