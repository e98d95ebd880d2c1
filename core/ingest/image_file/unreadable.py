"""The error of a file that cannot be read as an image."""

CUT = "damaged or cut off"
FORMATS = "PNG, JPEG, WebP, GIF, HEIC, AVIF, BMP or TIFF"


class Unreadable(ValueError):
    """A file that cannot be read as an image.

    The message gives the reason, worded to follow the file's name and a colon.
    """
