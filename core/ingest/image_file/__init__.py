"""One image file in, one square image out: the way with the number 2, in which models of today read their images.

A copy of this package lies in every download of a version that reads images in this way, and its README's code calls
it: so training, checks, predictions and downloads share one function. It imports the standard library, Pillow, NumPy
and pi-heif alone, and its own modules by relative imports. The bytes of downloads rest on these files.
"""

from .square import MAX_PIXELS, Square, read_array, read_square
from .unreadable import Unreadable

__all__ = ["MAX_PIXELS", "Square", "Unreadable", "read_array", "read_square"]
