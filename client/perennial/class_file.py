"""The file of a classifier's classes, and the form that carries it beside the weights."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json import dumps, loads
from pathlib import Path

from perennial.errors import ConfigError
from perennial.transfer import FileSource

MOST_BYTES = 64 << 10
"""Most bytes of a list of classes that the service takes."""


def get_class_list_as_text(classes: str | Path | Sequence[str]) -> str:
    """Return a list of class names as text, from a file or a sequence of names.

    Raises:
        ConfigError: there is no such file, it is no text, or it is too large.
    """
    if not isinstance(classes, str | Path):
        return dumps([*classes], ensure_ascii=False)
    path = Path(classes)
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    # Before reading: somebody may give the file of weights by mistake.
    if path.stat().st_size > MOST_BYTES:
        raise ConfigError(f"{path} has more than {MOST_BYTES} bytes, the most for classes.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path} is not UTF-8: save it as plain text, one class a line."
        ) from None


def read_class_names_of_file(classes: Path) -> list[str]:
    """Read the class names in a file, in the order of the classifier's outputs.

    Raises:
        ConfigError: see `get_class_list_as_text`.
    """
    text = get_class_list_as_text(classes)
    try:
        read = loads(text)
    # It is not JSON, and therefore has one class a line.
    except ValueError:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(read, dict):
        # A map from names to rows, or from rows to names.
        by_row = all(str(name).isdigit() for name in read) and not all(
            isinstance(row, int) for row in read.values()
        )
        return [str(name) for name in (read.values() if by_row else read)]
    return [str(name) for name in read] if isinstance(read, list) else [text.strip()]


@dataclass(frozen=True)
class ClassifierUploadForm:
    """Multipart form body that uploads a classifier's weights with its list of classes."""

    file: FileSource
    classes: str
    boundary: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def content_type(self) -> str:
        """Content-Type of the form, with its boundary."""
        return f"multipart/form-data; boundary={self.boundary}"

    @property
    def size(self) -> int:
        """Length of the form body in bytes."""
        return len(self._multipart_form_head) + self.file.size + len(self._closing_boundary)

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of the form body; `start` must be 0, since a form is sent in one piece."""
        assert start == 0, "a form is sent from its first byte"
        yield self._multipart_form_head
        yield from self.file.read_chunks()
        yield self._closing_boundary

    def sha256(self) -> str:
        """Return the SHA-256 of the form body in hex."""
        digest = hashlib.sha256()
        for chunk in self.read_chunks():
            digest.update(chunk)
        return digest.hexdigest()

    @property
    def _multipart_form_head(self) -> bytes:
        part = f"--{self.boundary}\r\nContent-Disposition: form-data; name="
        return f'{part}"classes"\r\n\r\n{self.classes}\r\n{part}"file"; filename="weights"\r\n\r\n'.encode()

    @property
    def _closing_boundary(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()
