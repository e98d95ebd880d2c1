"""The error of a file that gives no image."""

CUT = "damaged or cut off"
FORMATS = "PNG, JPEG, WebP, GIF, HEIC, AVIF, BMP or TIFF"


class Unreadable(ValueError):
    """A file cannot be read as an image; the message says why, in words that follow the file's name and a colon."""
