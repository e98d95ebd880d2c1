"""Uploads that can be resumed, attacked: lengths, offsets, metadata and checksums that lie, and
methods that hide.
"""

import base64
import hashlib
from collections.abc import Callable

from tests.security.bodies import LARGE, MISSING, REFUSED, TYPE
from tests.security.case import TASKS, Case

UPLOADS, UPLOAD = "/v1/uploads", "/v1/uploads/{upload}"
"""The second is an upload of `LENGTH` bytes of which none has come, and none is to come."""
LENGTH = 20 << 20
ELSEWHERE, VERSION, CHECKSUM = (
    "409 offset-mismatch",
    "412 protocol-version",
    "460 checksum-mismatch",
)
NOT_THERE, INCOMPLETE, METHOD = "404", "409 upload-incomplete", "405 method-not-allowed"
PIECE = "application/offset+octet-stream"
Body = bytes | Callable[[], bytes]


def list_cases() -> list[Case]:
    """Return all cases of uploads in pieces."""
    return [
        *_list_creation_cases(),
        *_list_listing_cases(),
        *_list_piece_cases(),
        *_list_submit_cases(),
        *_list_raw_cases(),
    ]


def _make_case(
    name: str, *answers: str, path: str, method: str = "POST", body: Body = b"", **headers: str
) -> Case:
    make = body if callable(body) else lambda: body
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Case("uploads", name, make, answers, path, method, named)


def _list_creation_cases() -> list[Case]:
    def length(name: str, value: str, *answers: str) -> Case:
        return _make_case(
            f"length: {name}", *(answers or (REFUSED,)), path=UPLOADS, Upload_Length=value
        )

    def metadata(name: str, value: str, *answers: str) -> Case:
        named = {"Upload_Length": "9", "Upload_Metadata": value}
        return _make_case(f"metadata: {name}", *(answers or (REFUSED,)), path=UPLOADS, **named)

    return [
        _make_case("length: none", REFUSED, path=UPLOADS),
        _make_case("length: later", REFUSED, path=UPLOADS, Upload_Defer_Length="1"),
        length("negative", "-1"),
        length("plus", "+1"),
        length("fraction", "1.5"),
        length("exponent", "1e3"),
        length("hexadecimal", "0x10"),
        length("with a line", "1_000"),
        length("words", "many"),
        length("empty", ""),
        length("NaN", "NaN"),
        length("two", "1, 2"),
        length("of other digits", "\u00b2"),
        length("2^63", str(1 << 63)),
        length("5,000 digits", "9" * 5000),
        length("a petabyte", str(10**15), LARGE),
        metadata("8,000 names", ",".join(f"k{n}" for n in range(8000))),
        metadata("60,000 characters", "a " + "A" * 60_000),
        metadata("commas", "," * 4000),
        metadata("no base64", "filename ../../etc/passwd%"),
        metadata("one name again and again", ",".join(["a YQ=="] * 15)),
        metadata("control characters", "a\x0b YQ==", REFUSED, "400", "closed"),
        metadata("Latin-1", "\u00ff YQ=="),
        metadata("padding alone", "a ===="),
        _make_case("body with the begin", TYPE, path=UPLOADS, body=b"x" * 100, Upload_Length="100"),
        _make_case("digest of the whole that is "
            "none", REFUSED, path=UPLOADS, Upload_Length="9", Repr_Digest="sha-256=:%:"),
        _make_case("other version", VERSION, path=UPLOADS, Upload_Length="9", Tus_Resumable="99.0.0"),
        _make_case("version of 60,000 "
            "characters", VERSION, path=UPLOADS, Upload_Length="9", Tus_Resumable="1" * 60_000),
        _make_case("key of 10,000 "
            "characters", REFUSED, path=UPLOADS, Upload_Length="9", Idempotency_Key="k" * 10_000),
    ]  # fmt: skip


def _list_listing_cases() -> list[Case]:
    def p(name: str, query: str) -> Case:
        return _make_case(f"list: {name}", REFUSED, path=f"{UPLOADS}?{query}", method="GET")

    return [
        p("cursor of words", "cursor=upl_01k00000000000000000000000"),
        p("cursor of a number", "cursor=WzFd"),
        p("cursor of SQL", "cursor=WyJ4JyBPUiAnMSc9JzEiXQ%3D%3D&limit=0"),
        p("a million of them", "limit=1000000"),
        p("of another owner", "owner=admin"),
    ]


def _list_piece_cases() -> list[Case]:
    def p(name: str, *answers: str, at: str | None = "0", body: Body = b"x" * 100, path: str = UPLOAD,
          method: str = "PATCH", **headers: str) -> Case:  # fmt: skip
        offset = {} if at is None else {"Upload_Offset": at}
        given = {"Content_Type": PIECE, **offset, **headers}
        return _make_case(
            f"piece: {name}", *(answers or (REFUSED,)), path=path, method=method, body=body, **given
        )

    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()

    def whole() -> bytes:
        return bytes(LENGTH)

    hidden = {
        "X_HTTP_Method_Override": "DELETE",
        "X_HTTP_Method": "DELETE",
        "X_Method_Override": "DELETE",
    }
    return [
        p("no offset", at=None),
        p("offset beyond", ELSEWHERE, at=str(LENGTH + 1)),
        p("offset at the end", ELSEWHERE, at=str(LENGTH)),
        p("offset of one", ELSEWHERE, at="1"),
        p("offset negative", at="-1"),
        p("offset of 2^63", at=str(1 << 63)),
        p("offset of 5,000 digits", at="9" * 5000),
        p("offset of words", at="end"),
        p("offset with a blank", at="0 0"),
        p("too short"),
        p("nothing", body=b""),
        p("longer than the file", LARGE, body=lambda: bytes(LENGTH + 1)),
        p("wrong checksum", CHECKSUM, body=whole, Upload_Checksum=f"sha256 {wrong}"),
        p("checksum of another algorithm", Upload_Checksum=f"crc32 {wrong}"),
        p("checksum that is short", Upload_Checksum="sha256 AAAA"),
        p("checksum without a digest", Upload_Checksum="sha256"),
        p("checksum of 60,000 characters", Upload_Checksum="sha256 " + "A" * 60_000),
        p("algorithm of Python", Upload_Checksum=f"shake_128 {wrong}"),
        p(
            "wrong Content-Digest",
            "422 digest-mismatch",
            body=whole,
            Content_Digest=f"sha-256=:{wrong}:",
        ),
        p("says that it is the last", Upload_Complete="?1", body=lambda: bytes(6 << 20)),
        p("Upload-Complete of words", Upload_Complete="true"),
        p("of no type", TYPE, Content_Type=""),
        p("as a form", TYPE, Content_Type="multipart/form-data; boundary=xx"),
        p("packed", TYPE, Content_Encoding="gzip"),
        p("other version", VERSION, Tus_Resumable="0.2.2"),
        p("by POST that says PATCH", METHOD, method="POST", X_HTTP_Method_Override="PATCH"),
        p("by POST that says DELETE", METHOD, method="POST", **hidden),
        p("by PUT", METHOD, method="PUT"),
        _make_case("HEAD that says DELETE", "200", path=UPLOAD, method="HEAD", **hidden),
        _make_case(
            "HEAD of nobody's",
            NOT_THERE,
            path="/v1/uploads/upl_01k00000000000000000000000",
            method="HEAD",
        ),
        p("to nobody's", MISSING, path="/v1/uploads/upl_01k00000000000000000000000"),
        p("to SQL", MISSING, path="/v1/uploads/x'%20OR%20'1'='1"),
        p("to a climbing path", MISSING, path="/v1/uploads/..%2f..%2fmodels"),
        p("to 30,000 characters", MISSING, REFUSED, "414", path="/v1/uploads/" + "x" * 30_000),
        p("to another kind of object", MISSING, path="/v1/uploads/mdl_01k00000000000000000000000"),
    ]


def _list_submit_cases() -> list[Case]:
    def s(name: str, body: bytes, *answers: str) -> Case:
        return _make_case(
            f"submit: {name}",
            *(answers or (REFUSED,)),
            path=TASKS,
            body=body,
            Content_Type="application/json",
        )

    return [
        s("incomplete", b'{"upload": "{upload}"}', INCOMPLETE),
        s("nobody's", b'{"upload": "upl_01k00000000000000000000000"}', MISSING),
        s("a path", b'{"upload": "../../etc/passwd"}', MISSING),
        s("an address", b'{"upload": "http://127.0.0.1/admin"}', MISSING),
        s("no name", b"{}"),
        s("nothing", b""),
        s("a list", b'{"upload": ["{upload}"]}'),
        s("named twice", b'{"upload": "a", "upload": "b"}'),
        s("100,000 brackets", b"[" * 100_000),
        s("1 MiB and a byte", b" " * (1 << 20) + b"1", LARGE),
        s("unknown field", b'{"upload": "{upload}", "owner": "admin"}'),
        s("name of markup and a line break", b'{"upload": "{upload}", "name": "a\\nb"}', REFUSED),
        s(
            "recipe 100 deep",
            b'{"upload": "{upload}", "recipe": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}",
        ),
    ]


def _list_raw_cases() -> list[Case]:
    def r(name: str, *answers: str, head: bytes, rest: bytes = b"") -> Case:
        start = (
            b"PATCH " + UPLOAD.encode() + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        )
        piece = start + b"Content-Type: " + PIECE.encode() + b"\r\n" + head + b"\r\n" + rest
        return Case("uploads", f"raw: {name}", lambda: [piece], answers, UPLOAD, "PATCH", raw=True)

    return [
        r("two offsets", REFUSED, head=b"Upload-Offset: 0\r\nUpload-Offset: 1\r\nContent-Length: "
            b"3\r\n", rest=b"abc"),
        r("two lengths", "400", "closed",
          head=b"Upload-Offset: 0\r\nContent-Length: 3\r\nContent-Length: 4\r\n", rest=b"abc"),
        r("length and chunks", "400", "closed",
          head=b"Upload-Offset: 0\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
          rest=b"3\r\nabc\r\n0\r\n\r\n"),
        r("two checksums", REFUSED,
          head=b"Upload-Offset: 0\r\nUpload-Checksum: sha256 A\r\nUpload-Checksum: sha256 B\r\n"
          b"Content-Length: 3\r\n", rest=b"abc"),
    ]  # fmt: skip
