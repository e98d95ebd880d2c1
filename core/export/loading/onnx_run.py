"""What the README of an ONNX download runs: an image file, read as the service reads it, and what the graph says of it.

A test compares its pixels with those of `core.ingest.images`. Numbers stand for a version's own.
"""

# The card begins here.
import json
import sys

import numpy
import onnxruntime
from PIL import Image, ImageOps

size, side, mode = 32, 32, "RGB"  # pixels of the input; of a photo's shorter side, whose centre is cut out
image = Image.open(sys.argv[1])
image.draft(None, (2 * side, 2 * side))  # a JPEG is decoded at a half, a quarter or an eighth where that is enough
image = ImageOps.exif_transpose(image)
kept = "L" if image.mode == "1" else image.mode if image.mode in ("L", "RGB") else "RGB"
image = image.convert("RGBA" if image.has_transparency_data else kept)
if image.size != (size, size):
    short = min(image.size)
    scaled = [side if n == short else max(side, round(n * side / short)) for n in image.size]
    box = [((s - size) // 2 + part) * (n / s) for part in (0, size) for n, s in zip(image.size, scaled)]
    box[2:] = [min(n, end) for n, end in zip(image.size, box[2:])]
    image = image.resize((size, size), Image.Resampling.BILINEAR, box)
if image.mode == "RGBA":
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
pixels = numpy.asarray(image.convert(mode)).reshape(1, size, size, -1).transpose(0, 3, 1, 2)

with open("labels.json", encoding="utf-8") as file:
    labels = json.load(file)
session = onnxruntime.InferenceSession("model.onnx")
for output, (found,) in zip(labels, session.run(list(labels), {"images": numpy.ascontiguousarray(pixels)})):
    for row in found.argsort()[::-1][:3]:
        print(output, labels[output][row], f"{found[row]:.6f}")
