"""Images of a dataset as PNG: one image, or several on a sheet."""

import io

import numpy as np
from PIL import Image

from core.ingest.dataset import Images

COLUMNS = 8
"""Tiles in a row of a sheet."""
TILE_PIXELS = 128
"""Largest side of a tile in pixels; larger images are reduced."""


def render_image(image: Images) -> bytes:
    """Return an image uint8 [S, S, C], C 1 (grey) or 3 (RGB), as PNG with the same pixels."""
    return _encode_png(_convert_image(image))


def render_sheet(images: Images) -> bytes:
    """Return images uint8 [N, S, S, C] as a PNG sheet, row by row, filled with black."""
    tiles = [_make_tile(image) for image in images]
    # All images of a dataset have one size.
    side, columns = tiles[0].width, min(len(tiles), COLUMNS)
    whole = Image.new(tiles[0].mode, (columns * side, -(-len(tiles) // columns) * side))
    for place, tile in enumerate(tiles):
        whole.paste(tile, (place % columns * side, place // columns * side))
    return _encode_png(whole)


def _make_tile(image: Images) -> Image.Image:
    picture = _convert_image(image)
    if picture.width <= TILE_PIXELS:
        return picture
    return picture.resize((TILE_PIXELS, TILE_PIXELS), Image.Resampling.BOX)


def _convert_image(image: Images) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image))


def _encode_png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
