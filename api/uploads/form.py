"""Stage 4 of an upload that is a form: one `file`, which goes to the spool, and small fields."""

import hashlib
import mmap

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.uploads.spool_file import SpoolFile
from core.errors import BodyTooLarge, BodyTruncated, Invalid
from core.text.nearest import format_field_path_suggestion

MAX_FIELD_BYTES = 64 << 10


class UploadFormParser:
    """Parser that extracts the one `file` and the fields of a multipart body."""

    def __init__(self, file: SpoolFile, boundary: bytes, fields: tuple[str, ...]) -> None:
        self._file = file
        self._allowed = fields
        self._hash = hashlib.sha256()
        self._name: str | None = None
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        self._value = bytearray()
        self._files = 0
        self._ended = False
        self.values: dict[str, str] = {}
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_end": self._end_form,
            },
        )

    def write(self, data: mmap.mmap, length: int) -> None:
        """Parse the next bytes of a multipart body. Raises Invalid if it is no multipart form."""
        piece = data[:length]  # bytes, because the parser calls methods that mmap objects lack
        self._hash.update(piece)
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise Invalid(f"The multipart body cannot be read: {error}.") from None

    def finish(self) -> None:
        """Check that the multipart form is complete, and finish its file.

        Raises:
            BodyTruncated: the closing boundary is missing.
            Invalid: there is no file.
        """
        # The closing boundary: without it the body was cut off, even if its length is right.
        if not self._ended:
            raise BodyTruncated("The multipart body ends before its closing boundary.")
        if not self._files:
            raise Invalid(
                "The multipart body has no part named file.",
                fields=[_build_missing_field_entry("file")],
            )
        self._file.finish()

    @property
    def body_sha256(self) -> str:
        """SHA-256 of the whole body of the request, in hex."""
        return self._hash.hexdigest()

    def _begin_part(self) -> None:
        self._headers, self._header, self._value, self._name = (
            {},
            (bytearray(), bytearray()),
            bytearray(),
            None,
        )

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        # A name in another encoding becomes an unknown part, which is refused below.
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data":
            raise Invalid("A part of the multipart body has no Content-Disposition: form-data.")
        if name == "file":
            self._files += 1
            if self._files > 1:
                raise Invalid("Send one file: the multipart body has several parts named file.")
            declared = self._headers.get(b"content-type")
            self._file.media_type = declared.decode("latin-1") if declared else None
        elif name not in self._allowed or name in self.values:
            allowed = ("file", *self._allowed)
            suggestion = "" if name in allowed else format_field_path_suggestion(name, allowed)
            raise Invalid(
                f"Unknown or repeated part {name[:60]!r}; {suggestion}there are: {', '.join(allowed)}.",
                fields=[{"field": name[:60], "message": "unknown or repeated"}],
            )
        self._name = name

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == "file":
            self._file.append_piece(memoryview(data)[start:end])
            return
        self._value += data[start:end]
        # Fields are held in memory, unlike the file.
        if len(self._value) > MAX_FIELD_BYTES:
            raise BodyTooLarge(f"The field {self._name} may have {MAX_FIELD_BYTES} bytes.")

    def _end_part(self) -> None:
        if self._name is not None and self._name != "file":
            try:
                self.values[self._name] = self._value.decode("utf-8")
            except UnicodeDecodeError:
                raise Invalid(f"The field {self._name} is not UTF-8.") from None

    def _end_form(self) -> None:
        self._ended = True


def _build_missing_field_entry(name: str) -> dict[str, str]:
    return {"field": name, "message": "is missing"}
