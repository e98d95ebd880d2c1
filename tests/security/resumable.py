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
    def make_length_case(name: str, value: str, *answers: str) -> Case:
        return _make_case(
            f"length: {name}", *(answers or (REFUSED,)), path=UPLOADS, Upload_Length=value
        )

    def make_metadata_case(name: str, value: str, *answers: str) -> Case:
        named = {"Upload_Length": "9", "Upload_Metadata": value}
        return _make_case(f"metadata: {name}", *(answers or (REFUSED,)), path=UPLOADS, **named)

    return [
        _make_case("length: none", REFUSED, path=UPLOADS),
        _make_case("length: later", REFUSED, path=UPLOADS, Upload_Defer_Length="1"),
        make_length_case("negative", "-1"),
        make_length_case("plus", "+1"),
        make_length_case("fraction", "1.5"),
        make_length_case("exponent", "1e3"),
        make_length_case("hexadecimal", "0x10"),
        make_length_case("with a line", "1_000"),
        make_length_case("words", "many"),
        make_length_case("empty", ""),
        make_length_case("NaN", "NaN"),
        make_length_case("two", "1, 2"),
        make_length_case("of other digits", "\u00b2"),
        make_length_case("2^63", str(1 << 63)),
        make_length_case("5,000 digits", "9" * 5000),
        make_length_case("a petabyte", str(10**15), LARGE),
        make_metadata_case("8,000 names", ",".join(f"k{n}" for n in range(8000))),
        make_metadata_case("60,000 characters", "a " + "A" * 60_000),
        make_metadata_case("commas", "," * 4000),
        make_metadata_case("no base64", "filename ../../etc/passwd%"),
        make_metadata_case("one name again and again", ",".join(["a YQ=="] * 15)),
        make_metadata_case("control characters", "a\x0b YQ==", REFUSED, "400", "closed"),
        make_metadata_case("Latin-1", "\u00ff YQ=="),
        make_metadata_case("padding alone", "a ===="),
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
    def make_listing_case(name: str, query: str) -> Case:
        return _make_case(f"list: {name}", REFUSED, path=f"{UPLOADS}?{query}", method="GET")

    return [
        make_listing_case("cursor of words", "cursor=upl_01k00000000000000000000000"),
        make_listing_case("cursor of a number", "cursor=WzFd"),
        make_listing_case("cursor of SQL", "cursor=WyJ4JyBPUiAnMSc9JzEiXQ%3D%3D&limit=0"),
        make_listing_case("a million of them", "limit=1000000"),
        make_listing_case("of another owner", "owner=admin"),
    ]


def _list_piece_cases() -> list[Case]:
    def make_piece_case(name: str, *answers: str, at: str | None = "0", body: Body = b"x" * 100, path: str = UPLOAD,
          method: str = "PATCH", **headers: str) -> Case:  # fmt: skip
        offset = {} if at is None else {"Upload_Offset": at}
        given = {"Content_Type": PIECE, **offset, **headers}
        return _make_case(
            f"piece: {name}", *(answers or (REFUSED,)), path=path, method=method, body=body, **given
        )

    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()

    def build_whole_body() -> bytes:
        return bytes(LENGTH)

    hidden = {
        "X_HTTP_Method_Override": "DELETE",
        "X_HTTP_Method": "DELETE",
        "X_Method_Override": "DELETE",
    }
    return [
        make_piece_case("no offset", at=None),
        make_piece_case("offset beyond", ELSEWHERE, at=str(LENGTH + 1)),
        make_piece_case("offset at the end", ELSEWHERE, at=str(LENGTH)),
        make_piece_case("offset of one", ELSEWHERE, at="1"),
        make_piece_case("offset negative", at="-1"),
        make_piece_case("offset of 2^63", at=str(1 << 63)),
        make_piece_case("offset of 5,000 digits", at="9" * 5000),
        make_piece_case("offset of words", at="end"),
        make_piece_case("offset with a blank", at="0 0"),
        make_piece_case("too short"),
        make_piece_case("nothing", body=b""),
        make_piece_case("longer than the file", LARGE, body=lambda: bytes(LENGTH + 1)),
        make_piece_case(
            "wrong checksum", CHECKSUM, body=build_whole_body, Upload_Checksum=f"sha256 {wrong}"
        ),
        make_piece_case("checksum of another algorithm", Upload_Checksum=f"crc32 {wrong}"),
        make_piece_case("checksum that is short", Upload_Checksum="sha256 AAAA"),
        make_piece_case("checksum without a digest", Upload_Checksum="sha256"),
        make_piece_case("checksum of 60,000 characters", Upload_Checksum="sha256 " + "A" * 60_000),
        make_piece_case("algorithm of Python", Upload_Checksum=f"shake_128 {wrong}"),
        make_piece_case(
            "wrong Content-Digest",
            "422 digest-mismatch",
            body=build_whole_body,
            Content_Digest=f"sha-256=:{wrong}:",
        ),
        make_piece_case(
            "says that it is the last", Upload_Complete="?1", body=lambda: bytes(6 << 20)
        ),
        make_piece_case("Upload-Complete of words", Upload_Complete="true"),
        make_piece_case("of no type", TYPE, Content_Type=""),
        make_piece_case("as a form", TYPE, Content_Type="multipart/form-data; boundary=xx"),
        make_piece_case("packed", TYPE, Content_Encoding="gzip"),
        make_piece_case("other version", VERSION, Tus_Resumable="0.2.2"),
        make_piece_case(
            "by POST that says PATCH", METHOD, method="POST", X_HTTP_Method_Override="PATCH"
        ),
        make_piece_case("by POST that says DELETE", METHOD, method="POST", **hidden),
        make_piece_case("by PUT", METHOD, method="PUT"),
        _make_case("HEAD that says DELETE", "200", path=UPLOAD, method="HEAD", **hidden),
        _make_case(
            "HEAD of nobody's",
            NOT_THERE,
            path="/v1/uploads/upl_01k00000000000000000000000",
            method="HEAD",
        ),
        make_piece_case("to nobody's", MISSING, path="/v1/uploads/upl_01k00000000000000000000000"),
        make_piece_case("to SQL", MISSING, path="/v1/uploads/x'%20OR%20'1'='1"),
        make_piece_case("to a climbing path", MISSING, path="/v1/uploads/..%2f..%2fmodels"),
        make_piece_case(
            "to 30,000 characters", MISSING, REFUSED, "414", path="/v1/uploads/" + "x" * 30_000
        ),
        make_piece_case(
            "to another kind of object", MISSING, path="/v1/uploads/mdl_01k00000000000000000000000"
        ),
    ]


def _list_submit_cases() -> list[Case]:
    def make_submit_case(name: str, body: bytes, *answers: str) -> Case:
        return _make_case(
            f"submit: {name}",
            *(answers or (REFUSED,)),
            path=TASKS,
            body=body,
            Content_Type="application/json",
        )

    return [
        make_submit_case("incomplete", b'{"upload": "{upload}"}', INCOMPLETE),
        make_submit_case("nobody's", b'{"upload": "upl_01k00000000000000000000000"}', MISSING),
        make_submit_case("a path", b'{"upload": "../../etc/passwd"}', MISSING),
        make_submit_case("an address", b'{"upload": "http://127.0.0.1/admin"}', MISSING),
        make_submit_case("no name", b"{}"),
        make_submit_case("nothing", b""),
        make_submit_case("a list", b'{"upload": ["{upload}"]}'),
        make_submit_case("named twice", b'{"upload": "a", "upload": "b"}'),
        make_submit_case("100,000 brackets", b"[" * 100_000),
        make_submit_case("1 MiB and a byte", b" " * (1 << 20) + b"1", LARGE),
        make_submit_case("unknown field", b'{"upload": "{upload}", "owner": "admin"}'),
        make_submit_case(
            "name of markup and a line break", b'{"upload": "{upload}", "name": "a\\nb"}', REFUSED
        ),
        make_submit_case(
            "recipe 100 deep",
            b'{"upload": "{upload}", "recipe": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}",
        ),
    ]


def _list_raw_cases() -> list[Case]:
    def make_raw_case(name: str, *answers: str, head: bytes, rest: bytes = b"") -> Case:
        start = (
            b"PATCH " + UPLOAD.encode() + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        )
        piece = start + b"Content-Type: " + PIECE.encode() + b"\r\n" + head + b"\r\n" + rest
        return Case("uploads", f"raw: {name}", lambda: [piece], answers, UPLOAD, "PATCH", raw=True)

    return [
        make_raw_case("two offsets", REFUSED, head=b"Upload-Offset: 0\r\nUpload-Offset: 1\r\nContent-Length: "
            b"3\r\n", rest=b"abc"),
        make_raw_case("two lengths", "400", "closed",
          head=b"Upload-Offset: 0\r\nContent-Length: 3\r\nContent-Length: 4\r\n", rest=b"abc"),
        make_raw_case("length and chunks", "400", "closed",
          head=b"Upload-Offset: 0\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
          rest=b"3\r\nabc\r\n0\r\n\r\n"),
        make_raw_case("two checksums", REFUSED,
          head=b"Upload-Offset: 0\r\nUpload-Checksum: sha256 A\r\nUpload-Checksum: sha256 B\r\n"
          b"Content-Length: 3\r\n", rest=b"abc"),
    ]  # fmt: skip
