"""Stage 2 of predict for `{"instances": [{"b64": …}]}`: image files in base64.

The body is bounded and already in memory. It is not parsed as general JSON, whose objects could
take many times its size, but as exactly this form. Each image is decoded in place, so the images
are slices of the body.
"""

import binascii

from core.errors import Invalid

FORM = '{"instances": [{"b64": "…"}]}'
_BEGIN = b'{"instances":'
_SPACE = b" \t\r\n"
_STEP = 64
"""Bytes of white space skipped at once."""
CHUNK = 256 << 10
"""Characters decoded at once; longer pieces would delay the other threads."""


def is_base64_instances_body(head: bytes) -> bool:
    """Return True if a JSON body begins with `instances` (base64 files) instead of nested arrays."""
    return head.translate(None, _SPACE).startswith(_BEGIN)


def decode_base64_instances_in_place(body: bytearray, max_images: int) -> list[memoryview]:
    """Decode the base64 images of a predict request's JSON in place, and return them in order.

    Args:
        max_images: maximum number of images in a request.

    Raises:
        Invalid: the body has another form, no or too many images, or invalid base64.
    """
    body_view = memoryview(body)
    images: list[memoryview] = []
    at = _expect_json_tokens(body, 0, "the body", b"{", b'"instances"', b":", b"[")
    while True:
        name = f"instances[{len(images)}]"
        if len(images) >= max_images:
            raise _build_instances_error(
                "instances", f"at most {max_images} images can be sent at once"
            )
        begin = _expect_json_tokens(body, at, name, b"{", b'"b64"', b":", b'"')
        end = body.find(b'"', begin)
        if end < 0:
            raise _build_instances_error(name, "its text does not end")
        # The bytes overwrite their own text, which is longer: no second buffer is needed.
        images.append(
            body_view[begin : begin + _decode_base64_in_place(body, body_view, begin, end, name)]
        )
        at = _expect_json_tokens(body, end + 1, name, b"}")
        at = _skip_white_space(body, at)
        if body[at : at + 1] != b",":
            break
        at += 1
    at = _skip_white_space(body, _expect_json_tokens(body, at, "the body", b"]", b"}"))
    if at != len(body):
        raise _build_instances_error("the body", "something follows its last bracket")
    return images


def _expect_json_tokens(body: bytearray, at: int, name: str, *tokens: bytes) -> int:
    """Return the position after the expected JSON tokens, which white space may precede.

    Raises Invalid for anything else.
    """
    for token in tokens:
        at = _skip_white_space(body, at)
        if body[at : at + len(token)] != token:
            raise _build_instances_error(name, f"{token.decode()} is expected at byte {at}")
        at += len(token)
    return at


def _skip_white_space(body: bytearray, at: int) -> int:
    """Return the position of the next byte in JSON that is not white space."""
    while True:
        piece = body[at : at + _STEP]
        stripped = piece.lstrip(_SPACE)
        if stripped or not piece:
            return at + len(piece) - len(stripped)
        at += _STEP


def _decode_base64_in_place(
    body: bytearray, body_view: memoryview, begin: int, end: int, name: str
) -> int:
    """Decode a base64 text in place and return the number of decoded bytes. Raises Invalid."""
    if body[begin : begin + 5] == b"data:":
        raise _build_instances_error(
            name, "send what stands after the comma of a data: URL, not the URL"
        )
    start, to, undecoded = begin, begin, b""
    # Some programs escape slashes, which JSON allows.
    is_escaped = body.find(b"\\", begin, end) >= 0
    while begin < end:
        stop = min(end, begin + CHUNK)
        # Do not cut between a backslash and its slash.
        if is_escaped and stop < end and body[stop - 1 : stop] == b"\\":
            stop += 1
        piece, begin = bytes(body_view[begin:stop]), stop
        text = undecoded + (piece.replace(b"\\/", b"/") if is_escaped else piece)
        usable = len(text) if begin == end else len(text) // 4 * 4
        try:
            data = binascii.a2b_base64(text[:usable], strict_mode=True)
            # Padding ends a text, also where a piece ends by chance.
            if begin < end and text[:usable].endswith(b"="):
                raise binascii.Error("Excess data after padding")
        except binascii.Error as error:
            raise _build_instances_error(
                name, f"its b64 is not base64 without line breaks ({str(error).lower()})"
            ) from None
        undecoded = text[usable:]
        # Writing never overtakes reading: three bytes replace four characters.
        body_view[to : to + len(data)] = data
        to += len(data)
    return to - start


def _build_instances_error(name: str, message: str) -> Invalid:
    return Invalid(
        f"The body must be {FORM}, with one image file in each b64: {name}: {message}.",
        fields=[{"field": name, "message": message}],
    )
