"""Code that the README of an ONNX download runs where copies of `core.ingest.image_file` lie beside it.

Numbers stand for a version's own.
"""

# The card begins here.
import json
import sys
from pathlib import Path

import numpy
import onnxruntime
from image_file import read_array  # beside this file: the code of the service itself

size, channels, crop, interpolation = 32, 3, None, None  # of the images that the version reads
photo = Path(sys.argv[1]).read_bytes()
pixels = read_array(photo, size, channels, crop, interpolation).transpose(2, 0, 1)[None]

with open("labels.json", encoding="utf-8") as file:
    labels = json.load(file)
session = onnxruntime.InferenceSession("model.onnx")
for output, (found,) in zip(labels, session.run(list(labels), {"images": numpy.ascontiguousarray(pixels)})):
    for row in found.argsort()[::-1][:3]:
        print(output, labels[output][row], f"{found[row]:.6f}")
