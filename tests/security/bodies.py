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
    def j(name: str, body: bytes, *answers: str) -> Case:
        return Case(
            "bodies", f"JSON: {name}", lambda: body, answers or (REFUSED,), MODELS, headers=JSON
        )

    def model(**fields: object) -> bytes:
        return json.dumps({"name": "evil", "scenario": "class", **fields}).encode()

    return [
        j("100,000 brackets", b"[" * 100_000),
        j("100,000 objects deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        j("65 deep", b'{"a":' * 65 + b"1" + b"}" * 65),
        j("name twice", b'{"name": "a", "name": "b", "scenario": "class"}'),
        j("name twice by an escape", b'{"name": "a", "\\u006eame": "b", "scenario": "class"}'),
        j("integer of 19 digits", model(recipe={"seed": 10**19})),
        j("integer of 100,000 digits", b'{"name": "a", "recipe": {"seed": ' + b"9" * 100_000 + b"}}"),
        j("float of 1e400", b'{"name": "evil", "scenario": "class", "recipe": {"method": "er", '
            b'"rate": 1e400}}'),
        j("NaN", b'{"name": "evil", "scenario": "class", "recipe": {"rate": NaN}}'),
        j("minus infinity", b'{"name": "evil", "scenario": "class", "recipe": {"rate": '
            b'-Infinity}}'),
        j("half a surrogate", b'{"name": "\\ud800", "scenario": "class"}'),
        j("half a surrogate as a name", b'{"\\udfff": 1, "name": "a", "scenario": "class"}'),
        j("NUL", b'{"name": "a\\u0000b", "scenario": "class"}'),
        j("byte order mark", b"\xef\xbb\xbf" + model()),
        j("UTF-16", model().decode().encode("utf-16")),
        j("UTF-32", model().decode().encode("utf-32")),
        j("not UTF-8", b'{"name": "\xff", "scenario": "class"}'),
        j("overlong UTF-8", b'{"name": "\xc0\xae\xc0\xae", "scenario": "class"}'),
        j("two values", model() + model()),
        j("nothing", b""),
        j("list", b"[]"),
        j("text", b'"evil"'),
        j("null", b"null"),
        j("comment", b"/**/" + model()),
        j("single quotes", b"{'name': 'evil'}"),
        j("1 MiB and a byte", b" " * (1 << 20) + b"1", LARGE),
        j("50,000 unknown fields", json.dumps({f"f{i}": i for i in range(50_000)}).encode()),
        j("__class__ and __proto__", model(__class__="x", __proto__={"admin": True})),
        j("owner of somebody else", model(owner="admin", id="mdl_1")),
        j("name that climbs", model(name="../../etc")),
        j("name of markup", model(name="<script>alert(1)</script>")),
        j("name with CR LF", model(name="a\r\nSet-Cookie: x")),
        j("name with bidi override", model(name="a\u202eb")),
        j("name of SQL", model(name="x'; DROP TABLE models;--")),
        j("name of 100,000 characters", model(name="x" * 100_000)),
        j("image of 10^9 pixels a side", model(image={"size": 10**9, "channels": 3})),
        j("image of no pixels", model(image={"size": 0, "channels": 3})),
        j("epochs of 2^62", model(recipe={"method": "er", "epochs": 1 << 62}), "422 invalid-recipe", REFUSED),
        j("widths of 10^9", model(architecture={"name": "mlp", "hidden": [10**9] * 9}), REFUSED, "422 invalid-recipe"),
        j("base that is a path", model(base="/etc/passwd"), REFUSED, MISSING),
        j("base that is an address", model(base="file:///etc/passwd#x"), REFUSED, MISSING),
        Case("bodies", "JSON: as a form", lambda: b"name=evil", (TYPE,), MODELS,
             headers={"Content-Type": "application/x-www-form-urlencoded"}),
        Case("bodies", "JSON: packed as "
            "gzip", lambda: gzip.compress(model()), (REFUSED, TYPE), MODELS,
             headers={**JSON, "Content-Encoding": "gzip"}),
    ]  # fmt: skip


def _list_array_cases() -> list[Case]:
    def a(name: str, body: bytes, *answers: str) -> Case:
        return Case("bodies", f"arrays: {name}", lambda: body, answers or (REFUSED, "422 image-invalid"), PREDICT,
                    headers=JSON)  # fmt: skip

    spread = b'[[["' + b"x" * (1 << 20) + b'"' + b',"1"' * 100_000 + b"]]]"
    return [
        a("100,000 brackets", b"[" * 100_000),
        a("five million empty lists", b"[[" + b"[]," * 5_000_000 + b"[]]]"),
        a("eight million channels of one pixel", b"[[[[" + b"1," * 8_000_000 + b"1]]]]"),
        a("a text that NumPy spreads over 400 GB", spread),
        a("NaN", b"[[[NaN]]]"),
        a("infinity", b"[[[1e999]]]"),
        a("256", b"[[[256]]]"),
        a("fraction", b"[[[0.5]]]"),
        a("negative", b"[[[-1]]]"),
        a("integer of 5,000 digits", b"[[[" + b"9" * 5000 + b"]]]"),
        a("ragged", b"[[[1, 2], [3]]]"),
        a("257 images", b"[" + b"[[1]]," * 256 + b"[[1]]]"),
        a("no images", b"[]"),
        a("images named twice", b'{"images": [[[1]]], "images": [[[2]]]}'),
        a("other field", b'{"instances": [[[1]]]}'),
        a("UTF-16", "[[[1]]]".encode("utf-16")),
        a("not UTF-8", b"\xff"),
    ]  # fmt: skip


def _list_form_cases() -> list[Case]:
    def part(
        data: bytes, head: bytes = b'Content-Disposition: form-data; name="file"; filename="a.zip"'
    ) -> bytes:
        return b"--xx\r\n" + head + b"\r\n\r\n" + data + b"\r\n"

    def f(
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
        f("no boundary", lambda: part(data) + end, kind="multipart/form-data"),
        f("empty boundary", lambda: part(data) + end, kind="multipart/form-data; boundary="),
        f("boundary of 71 characters", lambda: part(data) + end, kind="multipart/form-data; "
            "boundary=" + "x" * 71),
        f("boundary of 60,000 characters", lambda: part(data) + end,
          kind="multipart/form-data; boundary=" + "x" * 60_000),
        f("other boundary", lambda: part(data) + end, kind="multipart/form-data; boundary=yy"),
        f("no closing boundary", lambda: part(data), CUT),
        f("no file", lambda: end, REFUSED, CUT, BAD),
        f("two files", lambda: part(data) + part(data) + end),
        f("10,000 parts", lambda: part(b"{}", recipe) * 10_000 + end),
        f("part of another name", lambda: part(data, b'Content-Disposition: form-data; '
            b'name="../file"') + end),
        f("part without disposition", lambda: part(data, b"Content-Type: application/zip") + end),
        f("10,000 headers in a part",
          lambda: part(data, b"X-A: b\r\n" * 10_000 + b'Content-Disposition: form-data; '
              b'name="file"') + end),
        f("header of 8 MB in a part", lambda: part(data, b"X-A: " + b"b" * (8 << 20)) + end),
        f("header name of 8 MB in a part", lambda: part(data, b"X" * (8 << 20) + b": b") + end),
        f("parameter bomb in a disposition",
          lambda: part(data, b"Content-Disposition: form-data" + b"; a=b" * 800) + end),
        f("file name with CR LF",
          lambda: part(b"x", b'Content-Disposition: form-data; name="file"; filename="a\r\nX: '
              b'y"') + end,
          REFUSED, TYPE),
        f("field of 65 KiB", lambda: part(data) + part(b"x" * (65 << 10), recipe) + end, LARGE),
        f("field of 16 MB", lambda: part(b"x" * (16 << 20), recipe) + part(data) + end, LARGE),
        f("field that is not UTF-8", lambda: part(data) + part(b"\xff", recipe) + end),
        f("field twice", lambda: part(b"{}", recipe) + part(b"{}", recipe) + part(data) + end),
        f("recipe 100,000 deep", lambda: part(b"[" * 60_000, recipe) + part(data) + end),
        f("form in a form", lambda: part(part(data) + end) + end, REFUSED, TYPE, CUT),
        f("file in base64",
          lambda: part(b"UEsDBA==", b'Content-Disposition: form-data; name="file"\r\n'
                                    b"Content-Transfer-Encoding: base64") + end, TYPE),
        f("NUL in a part's head", lambda: part(data, b'Content-Disposition: form-data; '
            b'name="fi\0le"') + end),
        f("predict: 257 images", lambda: part(draw_png(), image) * 257 + end, to=PREDICT),
        f("predict: 10,000 images of no "
            "bytes", lambda: part(b"", image) * 10_000 + end, to=PREDICT),
        f("predict: no images", lambda: end, REFUSED, CUT, BAD, "422 image-invalid", to=PREDICT),
        f("predict: other part", lambda: part(draw_png(), b'Content-Disposition: form-data; '
            b'name="model"') + end,
          to=PREDICT),
        f("predict: 17 headers", lambda: part(draw_png(), b"X-A: b\r\n" * 17 + image) + end, to=PREDICT),
        f("predict: header of 8 "
            "MB", lambda: part(draw_png(), b"X-A: " + b"b" * (8 << 20) + b"\r\n" + image) + end,
          to=PREDICT),
        f("predict: 256 images of no "
            "bytes", lambda: part(b"", image) * 256 + end, "200", to=PREDICT),
        f("predict: file names of 3,000 characters and of control characters",
          lambda: part(draw_png(), image.replace(b"a.png", b"\xe2\x80\xae" * 1000))
          + part(draw_png(), image.replace(b"a.png", b"\x1b[2J\x07")) + end, "200", to=PREDICT),
        f("predict: no closing boundary", lambda: part(draw_png(), image), CUT, to=PREDICT),
    ]  # fmt: skip


def _list_header_cases() -> list[Case]:
    data = build_zip(draw_pictures())
    encodings = (
        "gzip", "br", "deflate", "zstd", "compress", "gzip, gzip, "
            "gzip", "identity, gzip", "x" * 4000,
    )  # fmt: skip

    def h(
        name: str,
        *answers: str,
        path: str = "/v1/models",
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> Case:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Case("bodies", f"head: {name}", lambda: body, answers, path, method, named)

    def post(name: str, *answers: str, **headers: str) -> Case:
        return h(name, *(answers or (REFUSED,)), path=TASKS, method="POST", body=data, **headers)

    bomb = zlib.compress(bytes(64 << 20), 9)
    return [
        *[post(f"Content-Encoding {e[:20]}", TYPE, Content_Encoding=e) for e in encodings],
        h("packed bomb as a "
            "batch", TYPE, path=TASKS, method="POST", body=bomb, Content_Encoding="deflate"),
        post("digest of another body", "422 digest-mismatch", Content_Digest=f"sha-256=:{'A' * 43}=:"),
        post("digest that is no base64", Content_Digest="sha-256=:%%%:"),
        post("digest of 60,000 characters", Content_Digest="sha-256=:" + "A" * 60_000 + ":"),
        post("recipe that is no JSON", Perennial_Recipe="{"),
        post("recipe 10,000 deep", Perennial_Recipe="[" * 10_000),
        post("recipe in Latin-1", Perennial_Recipe='{"a": "\u00ff"}'),
        post("idempotency key of 10,000 characters", Idempotency_Key="k" * 10_000),
        post("type of 60,000 characters", TYPE, Content_Type="a/" + "b" * 60_000),
        post("type with a comma bomb", TYPE, Content_Type="application/x," * 4000),
        h("method override", "200", X_HTTP_Method_Override="DELETE", X_Method_Override="DELETE",
          X_HTTP_Method="DELETE"),
        h("method override on a "
            "POST", LARGE, REFUSED, path=MODELS, method="POST", X_HTTP_Method_Override="DELETE",
          Content_Type="application/json"),
        h("TRACE", "405 method-not-allowed", method="TRACE"),
        h("unknown method", "405 method-not-allowed", "400", method="PWN"),
        h("request id with markup", "200", X_Request_ID="<script>\u00ff${jndi:ldap://x}"),
        h("host of somebody else", "200", Host="evil.example"),
        h("forwarded "
            "for", "200", X_Forwarded_For="127.0.0.1", X_Forwarded_Host="evil", X_Original_URL="/metrics"),
        h("key of 60,000 "
            "characters", "401 not-authenticated", Authorization="Bearer pk_" + "x" * 60_000),
        h("key of SQL", "401 not-authenticated", Authorization="Bearer pk_' OR '1'='1"),
        h("key of another scheme", "401 not-authenticated", Authorization="Basic YTpi"),
        h("key that is no ASCII", "401 not-authenticated", Authorization="Bearer pk_\u00e9\u00ff"),
        h("If-None-Match of 8,000 tags", "200", "304", If_None_Match=", ".join(['"a"'] * 8000)),
        h("Accept bomb", "200", Accept=",".join(["a/b;q=0.1"] * 4000)),
        h("Cookie bomb", "200", "closed", Cookie="a=b; " * 8000),
        *[h(f"Range {name}", "200", "206", "416 range-not-satisfiable", "400",
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
    def p(name: str, path: str, *answers: str) -> Case:
        return Case("bodies", f"path: {name}", lambda: b"", answers or (MISSING,), path, "GET")

    return [
        p("climbs", "/v1/models/..%2f..%2f..%2fetc%2fpasswd"),
        p("climbs in plain", "/v1/models/../../../etc/passwd", MISSING, "401"),
        p("climbs in overlong UTF-8", "/v1/models/%c0%ae%c0%ae%2fetc", MISSING, REFUSED),
        p("climbs twice encoded", "/v1/models/%252e%252e%252f", MISSING, REFUSED),
        p("backslashes", "/v1/models/..%5c..%5cwindows", MISSING, REFUSED),
        p("NUL", "/v1/models/a%00b", MISSING, REFUSED),
        p("not UTF-8", "/v1/models/%ff%fe", MISSING, REFUSED),
        p("half a surrogate", "/v1/models/%ed%a0%80", MISSING, REFUSED),
        p("CR LF", "/v1/models/a%0d%0aSet-Cookie:x", MISSING, REFUSED),
        p("of 30,000 characters", "/v1/models/" + "x" * 30_000, MISSING, REFUSED, BAD, "414"),
        p("SQL", "/v1/models/x'%20OR%20'1'='1", MISSING, REFUSED),
        p("wildcards", "/v1/models/%25_%25", MISSING, REFUSED),
        p("template", "/v1/models/%7B%7B7*7%7D%7D", MISSING, REFUSED),
        p("double slashes", "//v1//models//target", MISSING),
        p("version of 30 digits", "/v1/models/target/versions/" + "9" * 30, MISSING, REFUSED),
        p("version of 5,000 digits", "/v1/models/target/versions/" + "9" * 5000, MISSING, REFUSED),
        p("version below 0", "/v1/models/target/versions/-1", MISSING, REFUSED),
        p("version of other digits", "/v1/models/target/versions/%D9%A1", MISSING, REFUSED),
        p("version of a circled digit", "/v1/models/target/versions/%E2%91%A0", MISSING, REFUSED),
        p("task of 2^63", f"/v1/models/target/tasks/{1 << 63}", MISSING, REFUSED),
        p("task that is a number with "
            "blanks", "/v1/models/target/tasks/%201", MISSING, REFUSED, "200"),
        p("job that is no id", "/v1/jobs/job_%27%22%3C", MISSING),
        p("base that climbs", "/v1/bases/..%2f..", MISSING),
        p("limit of 10^9", "/v1/models?limit=1000000000", REFUSED),
        p("limit below 0", "/v1/models?limit=-1", REFUSED),
        p("limit that is NaN", "/v1/models?limit=NaN", REFUSED),
        p("cursor of noise", "/v1/models?cursor=%00%ff", REFUSED),
        p("cursor of a forged row", "/v1/models?cursor=WzEsIDIsIDNd", REFUSED),
        p("cursor of 10,000 characters", "/v1/models?cursor=" + "A" * 10_000, REFUSED),
        p("query twice", "/v1/models?limit=1&limit=2", REFUSED),
        p("101 queries", "/v1/models?" + "&".join(f"a{i}=1" for i in range(101)), REFUSED),
        p("unknown query", "/v1/models?admin=1", REFUSED),
    ]  # fmt: skip


def _list_raw_cases() -> list[Case]:
    def r(name: str, *answers: str, pieces: list[bytes], pause_s: float = 0.0) -> Case:
        return Case("bodies", f"raw: {name}", lambda: pieces, answers, raw=True, pause_s=pause_s)

    key = b"Host: x\r\nAuthorization: Bearer {key}\r\n"
    get = b"GET /v1/models HTTP/1.1\r\n" + key
    post = b"POST " + TASKS.encode() + b" HTTP/1.1\r\n" + key + b"Content-Type: application/zip\r\n"
    data = build_zip(draw_pictures())
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    closed = (BAD, "closed", SLOW)
    return [
        r("fewer bytes than declared, then gone", CUT, "closed",
          pieces=[post + b"Content-Length: 9000\r\n\r\n" + data[:99]]),
        r("more bytes than declared", "422 archive-invalid", BAD,
          pieces=[post + b"Content-Length: 99\r\n\r\n" + data[:99] + b"GARBAGE"]),
        r("length below 0", *closed, REFUSED, pieces=[post + b"Content-Length: -1\r\n\r\n"]),
        r("length with a plus", *closed, REFUSED, pieces=[post + b"Content-Length: "
            b"+5\r\n\r\nhello"]),
        r("length in hexadecimal", *closed, REFUSED, pieces=[post + b"Content-Length: "
            b"0x5\r\n\r\nhello"]),
        r("length of 30 digits", *closed, REFUSED, LARGE,
          pieces=[post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"]),
        r("length of 2^63 - 1", *closed, LARGE, REFUSED,
          pieces=[post + b"Content-Length: 9223372036854775807\r\n\r\n"]),
        r("two lengths", *closed, REFUSED, pieces=[post + b"Content-Length: 5\r\nContent-Length: "
            b"9\r\n\r\nhello"]),
        r("length and chunks (smuggling)", *closed, "415", "422 archive-invalid", pieces=[
            post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics "
                b"HTTP/1.1\r\n\r\n"]),
        r("chunks, said in an odd way", *closed, "422", "415", CUT,
          pieces=[post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"]),
        r("chunks twice", *closed, "422", "415",
          pieces=[post + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"]),
        r("chunks without end, then "
            "gone", CUT, "closed", TYPE, pieces=[chunked + b"5\r\nPK\x03\x04x\r\n"]),
        r("chunk of 2^64 bytes", *closed, CUT, pieces=[chunked + b"ffffffffffffffff\r\nPK"]),
        r("chunk of 2^80 bytes", *closed, CUT, pieces=[chunked + b"f" * 20 + b"\r\nPK"]),
        r("chunk below 0", *closed, CUT, pieces=[chunked + b"-5\r\nhello\r\n0\r\n\r\n"]),
        r("chunk extension of 1 MB", *closed, "431", CUT, TYPE, "422",
          pieces=[chunked + b"5;" + b"x" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n"]),
        r("trailers of 1 MB", *closed, "431", CUT, TYPE, "422",
          pieces=[chunked + b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 200_000 + b"\r\n"]),
        r("chunks of one byte", TYPE, pieces=[chunked + b"1\r\nP\r\n" * 20_000 + b"0\r\n\r\n"]),
        r("header of 1 MB", "431", pieces=[get + b"X-A: " + b"b" * (1 << 20) + b"\r\n\r\n"]),
        r("100,000 headers", "431", pieces=[get + b"X-A: b\r\n" * 100_000 + b"\r\n"]),
        r("path of 1 MB", "431", pieces=[b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\n" + key + b"\r\n"]),
        r("NUL in a header", *closed, pieces=[get + b"X-A: a\0b\r\n\r\n"]),
        r("bare CR in a header", *closed, pieces=[get + b"X-A: a\rSet-Cookie: x\r\n\r\n"]),
        r("folded header", *closed, "200", pieces=[get + b"X-A: a\r\n b\r\n\r\n"]),
        r("blank before the colon", *closed, pieces=[get + b"Content-Length : 5\r\n\r\nhello"]),
        r("header without a name", *closed, pieces=[get + b": x\r\n\r\n"]),
        r("request id with CR LF", *closed, "200", pieces=[get + b"X-Request-ID: "
            b"a%0d%0aSet-Cookie: x\r\n\r\n"]),
        r("HTTP/0.9, then gone", *closed, pieces=[b"GET /v1/models\r\n"]),
        r("HTTP/9.9", *closed, pieces=[b"GET /v1/models HTTP/9.9\r\n" + key + b"\r\n"]),
        r("HTTP/2 preface", *closed, pieces=[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40)]),
        r("TLS hello", *closed, pieces=[b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(300)]),
        r("noise", *closed, pieces=[bytes(range(256)) * 40]),
        r("upgrade to a socket", "200", BAD, "404", "closed", pieces=[
            get + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"]),
        r("CONNECT", *closed, "404", "405", pieces=[b"CONNECT evil.example:80 "
            b"HTTP/1.1\r\n" + key + b"\r\n"]),
        r("asterisk", *closed, "404", "405", pieces=[b"OPTIONS * HTTP/1.1\r\n" + key + b"\r\n"]),
        r("absolute address", "200", "404", BAD,
          pieces=[b"GET http://evil.example/v1/models HTTP/1.1\r\n" + key + b"\r\n"]),
        r("500 requests at once, then gone", "200", "closed", pieces=[(get + b"\r\n") * 500]),
        r("body on a GET", "200", pieces=[get + b"Content-Length: 5\r\n\r\nhello"]),
        r("100-continue with a body too large", LARGE,
          pieces=[post + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"]),
        r("other expectation", "417", BAD, "422", "415", CUT,
          pieces=[post + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"]),
        r("head in drops, then gone", "closed",
          pieces=[b"GET /v1/models HTTP/1.1\r\n", b"Host: x\r\n", b"X-A: "], pause_s=0.3),
        r("body that stops", SLOW, pause_s=0.5,
          pieces=[post + b"Content-Length: "
              b"9000\r\n\r\n" + data[:50], b"", b"", b"", b"", b"", b""]),
        r("body in drops", SLOW, pause_s=0.2,
          pieces=[post + b"Content-Length: 9000\r\n\r\n", *[bytes([b]) for b in data[:30]]]),
        r("predict that stops, then gone", "closed", CUT, pieces=[
            post.replace(TASKS.encode(), PREDICT.encode()).replace(b"application/zip", b"application/json")
            + b"Content-Length: 9000\r\n\r\n[[["]),
        r("batch larger than declared limit, in chunks", LARGE, "closed", pieces=[
            chunked + b"4\r\nPK\x03\x04\r\n", *[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 80]),
    ]  # fmt: skip
