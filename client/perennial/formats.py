"""Upload formats as their files show them: endings of names, and marks in the first bytes.

The service imports this module too. Its readers declare the values (`core.ingest.readers.registry`);
`perennial._formats` has those of this version.
"""

from dataclasses import dataclass

FIRST_BYTES = 512
"""Number of first bytes of a file that contain the marks of all formats."""


@dataclass(frozen=True)
class UploadFormat:
    """An archive format for uploads: its file endings and first bytes.

    Attributes:
        endings: of its files' names, in lower case; people see the first one, without its dot, as
            the format's name.
        marks: (offset, bytes) pairs; a file that has one of them is of this format.
    """

    endings: tuple[str, ...]
    marks: tuple[tuple[int, bytes], ...] = ()

    def has_format_signature(self, first: bytes) -> bool:
        """Return True if a file's first bytes have one of the format's marks."""
        return any(first.startswith(mark, offset) for offset, mark in self.marks)


@dataclass(frozen=True)
class UploadFormats:
    """All archive formats for uploads, in the order in which they are listed for people."""

    each: tuple[UploadFormat, ...]

    @property
    def endings(self) -> tuple[str, ...]:
        """File endings of all upload formats, longer ones first, so that the first match is the
        whole ending.
        """
        endings = (ending for one in self.each for ending in one.endings)
        return tuple(sorted(endings, key=len, reverse=True))

    def has_archive_ending(self, name: str) -> bool:
        """Return True if a file's name ends like that of an archive, in upper or lower case."""
        return name.lower().endswith(self.endings)

    def strip_archive_ending(self, name: str) -> str:
        """Return a file's name without the ending of its format."""
        fitting = (ending for ending in self.endings if name.lower().endswith(ending))
        return name[: len(name) - len(next(fitting, ""))]

    def has_any_format_signature(self, first: bytes) -> bool:
        """Return True if a file's first bytes have a mark of any upload format."""
        return any(one.has_format_signature(first) for one in self.each)

    def __str__(self) -> str:
        """Return the names for a sentence: “zip, tar or npz”."""
        *names, last = (one.endings[0].removeprefix(".") for one in self.each)
        return f"{', '.join(names)} or {last}"
