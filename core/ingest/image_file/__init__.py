"""One image file in, one square image out: the way with the number 2, in which models of today read their images.

Copies of these files lie in every download of a version that reads images in this way, and its README's code calls
them: so training, checks, predictions and downloads share one function. They import the standard library, Pillow,
NumPy and pi-heif alone, and each other by relative imports. The bytes of downloads rest on them.
"""

from .square import MAX_PIXELS, Square, read_array, read_square
from .unreadable import Unreadable

__all__ = ["MAX_PIXELS", "Square", "Unreadable", "read_array", "read_square"]
