"""Decoding version 2, with which current models read images: a file becomes a square image.

Every download of a version with this decoding contains copies of these files, which the code in its
README calls. So training, checks, predictions and downloads share one function. The files import
only the standard library, Pillow, NumPy and pi-heif, and each other by relative imports. The bytes
of downloads depend on them.
"""

from .square import MAX_PIXELS, Square, read_array, read_square
from .unreadable import Unreadable

__all__ = ["MAX_PIXELS", "Square", "Unreadable", "read_array", "read_square"]
