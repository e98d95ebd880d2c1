"""Stage 2 of predict for a form: the images are slices of the body, which is bounded and in
memory.
"""

from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from core.errors import BodyTruncated, ImageInvalid, Invalid

MAX_HEADERS = 16
FIELDS = ("file", "files", "image", "images")
MAX_NAME_CHARS = 200
_SEND = "send each image as a part named file or image"


@dataclass(frozen=True)
class FormImage:
    """One image file of a multipart form: its bytes and its cleaned file name, if any."""

    name: str | None
    data: bytes | memoryview


def parse_form_boundary(content_type: str) -> bytes:
    """Return the multipart boundary in a Content-Type header.

    Raises:
        Invalid: there is none, or it is too long.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    # The limit of RFC 2046 §5.1.1.
    if not boundary or len(boundary) > 70:
        raise Invalid("The multipart body needs a boundary of at most 70 characters.")
    return boundary


def parse_form_files(body: bytes | bytearray, boundary: bytes, max_images: int) -> list[FormImage]:
    """Parse the image files in a multipart form, in order.

    Args:
        max_images: maximum number of images in a request.

    Raises:
        Invalid: not a readable form, an unknown field, or too many images.
        BodyTruncated: the closing boundary is missing.
        ImageInvalid: there is no image.
    """
    form = _ImageFormParser(max_images)
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": form.begin_part,
            "on_part_data": form.add_data,
            "on_part_end": form.end_part,
            "on_header_field": lambda data, start, end: form.name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: form.value.extend(data[start:end]),
            "on_header_end": form.header_end,
            "on_headers_finished": form.headers_finished,
            "on_end": form.end_form,
        },
    )
    try:
        parser.write(body)  # type: ignore[arg-type]  # a bytearray works too, and is not copied
    except FormParserError as error:
        raise Invalid(f"The multipart body cannot be read: {error}.") from None
    if not form.ended:
        raise BodyTruncated("The multipart body ends before its closing boundary.")
    if not form.files:
        raise ImageInvalid(f"The form has no image: {_SEND}.")
    return form.files


class _ImageFormParser:
    def __init__(self, max_images: int) -> None:
        self.max_images = max_images
        self.files: list[FormImage] = []
        self.file_name: str | None = None
        self.ended = False
        self.name, self.value = bytearray(), bytearray()
        self.chunks: list[memoryview] = []
        self.headers: dict[bytes, bytes] = {}

    def begin_part(self) -> None:
        self.headers, self.chunks = {}, []
        self.name, self.value = bytearray(), bytearray()

    def header_end(self) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise Invalid("A part of the multipart body has too many headers.")
        self.headers[bytes(self.name).lower()] = bytes(self.value)
        self.name, self.value = bytearray(), bytearray()

    def headers_finished(self) -> None:
        kind, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or name not in FIELDS:
            raise Invalid(
                f"Unknown part {name[:60]!r}: {_SEND}.",
                fields=[{"field": name[:60], "message": "unknown part"}],
            )
        if len(self.files) >= self.max_images:
            raise Invalid(f"At most {self.max_images} images can be sent at once.")
        # A response repeats the name: one that is not UTF-8 must not fail the request.
        self.file_name = _clean_uploaded_file_name(
            options.get(b"filename", b"").decode("utf-8", "replace")
        )

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self.chunks.append(memoryview(data)[start:end])

    def end_part(self) -> None:
        # The body is parsed in one call, so a part is usually one slice, which is not copied.
        data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        self.files.append(FormImage(self.file_name, data))

    def end_form(self) -> None:
        self.ended = True


def _clean_uploaded_file_name(name: str) -> str | None:
    """Clean an uploaded file's name for the response: limited length, no control characters."""
    name = "".join(c if c.isprintable() else "\ufffd" for c in name)
    return (name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…") or None
