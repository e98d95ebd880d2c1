"""Archives in one of the service's own formats, sent unchanged."""

from collections.abc import Iterator
from pathlib import Path

from perennial._formats import FORMATS
from perennial.formats import FIRST_BYTES
from perennial.pack.batch import PackedBatch
from perennial.pack.errors import PackError
from perennial.pack.files import ListedFileStates
from perennial.pack.text import quote_name

_PIECE = 1 << 20


def looks_like_archive(first: bytes) -> bool:
    """Return True if a file with these first bytes is an archive that the service reads."""
    # Tars from before POSIX have no mark, so only their checksum identifies them.
    return FORMATS.has_any_format_signature(first) or _is_old_tar(first)


def _is_old_tar(first: bytes) -> bool:
    digits = first[148:156].strip(b" \0")
    # The checksum counts its own eight bytes as blanks.
    total = sum(first[:148]) + 8 * 32 + sum(first[156:512])
    return (
        len(first) == 512
        and digits.isdigit()
        and b"8" not in digits
        and int(digits.replace(b"9", b"0"), 8) == total
    )


class ArchiveBatch(PackedBatch):
    """An archive that is uploaded unchanged; only its first bytes are examined."""

    def __init__(self, source: Path | bytes) -> None:
        """Open an archive.

        Raises:
            PackError: it is not an archive that the service reads.
        """
        # Recorded for an archive as well, since the file may change while it is sent.
        self._source, self._seen = source, ListedFileStates()
        if isinstance(source, Path):
            self._seen.record_file_state(str(source))
            with source.open("rb") as file:
                first = file.read(FIRST_BYTES)
        else:
            first = source[:FIRST_BYTES]
        if not looks_like_archive(first):
            subject = (
                f"{quote_name(source)} is" if isinstance(source, Path) else "The bytes given are"
            )
            raise PackError(f"{subject} no {FORMATS}.")

    @property
    def size(self) -> int:
        """Size of the uploaded archive in bytes."""
        return self._seen.sizes[0] if isinstance(self._source, Path) else len(self._source)

    def describe(self) -> str:
        """Describe the archive in a sentence: its name and size."""
        name = (
            f"The archive {quote_name(self._source.name)}"
            if isinstance(self._source, Path)
            else "An archive"
        )
        return f"{name} of {self.size:,} bytes, sent as it is."

    def _iterate_packed_bytes_from(self, start: int) -> Iterator[bytes]:
        if isinstance(self._source, Path):
            return self._seen.read_pieces(0, str(self._source), start)
        return (self._source[at : at + _PIECE] for at in range(start, self.size, _PIECE))
