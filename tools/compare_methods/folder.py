"""The user's folder: labelled images in any layout that the client can submit."""

from pathlib import Path

from perennial.pack import PackError
from perennial.pack.errors import PathOutsideFolder
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.kinds import ARCHIVE, KINDS, detect_data_set_kind
from perennial.pack.labels import require_valid_labels_with_training_images
from tools.compare_methods.errors import ComparisonImpossible


class LabelledPhotos:
    """Labelled images of a folder by number, whose bytes are read on request.

    Attributes:
        rows: name, label and part of each image. The part is `train`, `test`, or empty if the
            folder has no parts.
        warnings: sentences about files that were left out.
    """

    def __init__(self, images: ImageSource) -> None:
        self._images = images
        self.rows: list[BatchImageEntry] = images.rows
        self.warnings = images.warnings

    def read_image_bytes(self, number: int) -> bytes:
        """Read the bytes of an image of the folder.

        Raises:
            PackError: the file was deleted or changed.
        """
        # Keep a reference, because some kinds close their file once nobody holds the contents.
        contents = self._images.iterate_image_contents(number)
        return b"".join(next(iter(contents)))


def list_labelled_photos(folder: Path) -> LabelledPhotos:
    """List a folder's labelled images, reading them only if their sizes are not recorded.

    Raises:
        ComparisonImpossible: the folder has no layout that the client can submit.
    """
    try:
        kind = detect_data_set_kind(folder)
        if kind == ARCHIVE:
            raise ComparisonImpossible(
                f"{folder} is an archive. A comparison takes a folder with a folder of images for "
                "each class: unpack the archive and name its folder."
            )
        images = KINDS[kind](folder)
        # Removes images that cannot be read, so that they are not drawn into the split.
        images.collect_image_byte_sizes()
        require_valid_labels_with_training_images(images.rows, images.origin)
    except PathOutsideFolder as error:
        raise ComparisonImpossible(
            f"{error.found} A comparison reads only what is in the folder: replace links by copies "
            f"of their files."
        ) from error
    except PackError as error:
        raise ComparisonImpossible(str(error)) from error
    return LabelledPhotos(images)
