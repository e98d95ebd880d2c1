"""The list of download formats. A new format is a file in `formats/` and a line here."""

from core.export.format import Format
from core.export.formats.onnx_zip import OnnxZip
from core.export.formats.safetensors_zip import SafetensorsZip

_ALL: list[Format] = [
    SafetensorsZip(),
    OnnxZip(),
]
FORMATS = {each.name: each for each in _ALL}
"""Formats by the value of `?format=`."""
