"""Images from a program: a mapping from class to images, each as bytes of a file or a path."""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perennial.pack import parts
from perennial.pack.errors import PackError
from perennial.pack.files import ListedFileStates
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import build_sortable_numbered_name
from perennial.pack.text import quote_name

Content = bytes | str | os.PathLike[str]
Classes = Mapping[str, Sequence[Content]]


class ImagesFromMapping(ImageSource):
    """Images given in Python as a mapping from class to images, or from train and test to classes."""

    def __init__(self, source: Mapping[str, Sequence[Content] | Classes]) -> None:
        """List the images of a mapping.

        Raises:
            PackError: the mapping has another shape, or has no images.
        """
        super().__init__("a mapping")
        self._contents: list[bytes | int] = []  # bytes, or the number of a file
        self._paths: list[str] = []
        self._seen = ListedFileStates()
        nested = [key for key in source if isinstance(source[key], Mapping)]
        wrong = [
            key
            for key in source
            if (key in nested) != bool(nested)
            or (nested and not parts.parse_dataset_part(str(key)))
        ]
        if wrong or not source:
            raise PackError(
                "A mapping must be {class: [images]}, or {'train': {class: [images]}, 'test': "
                "{class: [images]}}"
                + (
                    f"; {quote_name(str(wrong[0]))} does not fit."
                    if wrong
                    else "; this one is empty."
                )
            )
        as_taken = parts.map_dataset_parts_to_splits(
            {parts.parse_dataset_part(str(key)) for key in nested}, "The mapping"
        )
        # Sorted, so that the order of the mapping does not change the bytes.
        for key in sorted(source):
            classes = source[key]
            if not isinstance(classes, Mapping):
                self._add_images_of_label(str(key), classes, "")
                continue
            for label in sorted(classes):
                self._add_images_of_label(
                    str(label), classes[label], as_taken[parts.parse_dataset_part(key)]
                )
        if not self.rows:
            raise PackError("The mapping has no images.")

    def _add_images_of_label(self, label: str, images: Sequence[Content], part: str) -> None:
        # Both are sequences: each byte or letter would be taken for an image.
        if isinstance(images, bytes | str):
            raise PackError(
                f"The images of the class {quote_name(label)} must be a list, not a single "
                f"{type(images).__name__}."
            )
        for image in images:
            name = ""
            if isinstance(image, bytes):
                self._contents.append(image)
            elif isinstance(image, str | os.PathLike):
                name = os.fspath(image)
                self._contents.append(len(self._paths))
                self._seen.record_file_state(name)
                self._paths.append(name)
            else:
                raise PackError(
                    f"The class {quote_name(label)} has a {type(image).__name__}; an image is a "
                    f"path, or its file's bytes."
                )
            self.rows.append(
                BatchImageEntry(
                    build_sortable_numbered_name(len(self.rows), name.replace(os.sep, "/")),
                    convert_label_to_stripped_nfc(label),
                    part,
                )
            )

    def collect_image_byte_sizes(self) -> "array[int]":
        """Return the sizes of the mapped images in bytes and files, without reading the files."""
        return array(
            "q", (len(c) if isinstance(c, bytes) else self._seen.sizes[c] for c in self._contents)
        )

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the bytes of the mapped images in order."""
        for content in self._contents[first:]:
            yield (
                (content,)
                if isinstance(content, bytes)
                else self._seen.read_pieces(content, self._paths[content])
            )
