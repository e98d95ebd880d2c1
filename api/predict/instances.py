"""Station 2 of predict where the body is `{"instances": [{"b64": …}]}`: image files in base64.

The body is in memory already and bounded. It is not read as JSON of any kind, whose objects could take many times its
bytes, but as this one form, and each image is decoded where its text stands: the images are slices of the body.
"""

import binascii

from core.errors import Invalid

FORM = '{"instances": [{"b64": "…"}]}'
_BEGIN = b'{"instances":'
_SPACE = b" \t\r\n"
_STEP = 64
"""Bytes at once in which white space is passed over."""
CHUNK = 256 << 10
"""Characters decoded at once: a longer piece would hold up the other threads."""


def is_begun(head: bytes) -> bool:
    """Return whether a body that begins so holds instances, and not nested arrays."""
    return head.translate(None, _SPACE).startswith(_BEGIN)


def images_of(body: bytearray, most: int) -> list[memoryview]:
    """The image files in order; the body then holds them in place of their texts.

    Args:
        most: images that may be sent at once.

    Raises:
        Invalid: another form, no image or too many, or a text that is no base64.
    """
    whole = memoryview(body)
    found: list[memoryview] = []
    at = _pass(body, 0, "the body", b"{", b'"instances"', b":", b"[")
    while True:
        name = f"instances[{len(found)}]"
        if len(found) >= most:
            raise _unfit("instances", f"at most {most} images can be sent at once")
        begin = _pass(body, at, name, b"{", b'"b64"', b":", b'"')
        end = body.find(b'"', begin)
        if end < 0:
            raise _unfit(name, "its text does not end")
        found.append(whole[begin : begin + _decode(body, whole, begin, end, name)])
        at = _pass(body, end + 1, name, b"}")
        at = _skip(body, at)
        if body[at : at + 1] != b",":
            break
        at += 1
    at = _skip(body, _pass(body, at, "the body", b"]", b"}"))
    if at != len(body):
        raise _unfit("the body", "something follows its last bracket")
    return found


def _pass(body: bytearray, at: int, name: str, *tokens: bytes) -> int:
    """The position after tokens, which white space may part. Raises Invalid where another stands there."""
    for token in tokens:
        at = _skip(body, at)
        if body[at : at + len(token)] != token:
            raise _unfit(name, f"{token.decode()} is expected at byte {at}")
        at += len(token)
    return at


def _skip(body: bytearray, at: int) -> int:
    """The position of the next byte that is no white space."""
    while True:
        piece = body[at : at + _STEP]
        rest = piece.lstrip(_SPACE)
        if rest or not piece:
            return at + len(piece) - len(rest)
        at += _STEP


def _decode(body: bytearray, whole: memoryview, begin: int, end: int, name: str) -> int:
    """Write what a text stands for over the text; the number of its bytes. Raises Invalid."""
    if body[begin : begin + 5] == b"data:":
        raise _unfit(name, "send what stands after the comma of a data: URL, not the URL")
    start, to, kept = begin, begin, b""
    is_escaped = body.find(b"\\", begin, end) >= 0
    while begin < end:
        stop = min(end, begin + CHUNK)
        if is_escaped and stop < end and body[stop - 1 : stop] == b"\\":
            stop += 1
        piece, begin = bytes(whole[begin:stop]), stop
        text = kept + (piece.replace(b"\\/", b"/") if is_escaped else piece)
        use = len(text) if begin == end else len(text) // 4 * 4
        try:
            data = binascii.a2b_base64(text[:use], strict_mode=True)
            if begin < end and text[:use].endswith(b"="):
                raise binascii.Error("Excess data after padding")
        except binascii.Error as error:
            raise _unfit(name, f"its b64 is not base64 without line breaks ({str(error).lower()})") from None
        kept = text[use:]
        whole[to : to + len(data)] = data  # never beyond what was read: three bytes stand for four characters
        to += len(data)
    return to - start


def _unfit(name: str, message: str) -> Invalid:
    return Invalid(
        f"The body must be {FORM}, with one image file in each b64: {name}: {message}.",
        fields=[{"field": name, "message": message}],
    )
