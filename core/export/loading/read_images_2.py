"""An image file as the service reads it by its second decoding: copies of `core.ingest.image_file` lie beside it."""

import torch

from core.export.loading.start import config

# The card begins here.
import sys

sys.path.insert(0, "")  # the folder of the download, which holds image_file.py
from image_file import read_array


def read(path):
    """An image file as uint8 [size, size, channels], by the code of the service itself (its first frame)."""
    image = config["image"]
    with open(path, "rb") as file:
        data = file.read()
    pixels = read_array(data, image["size"], image["channels"], image.get("crop"), image.get("interpolation"))
    return torch.from_numpy(pixels)
