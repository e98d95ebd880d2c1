"""Answers that attack the client: what a hostile service says in place of `sample_answers`."""

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hostile_service import Reply, build_http_response

Change = Callable[[str, Any], Any]
"""Values that take the place of a plain one, by the type of the field: text, number …"""
TEXTS = {
    "escape sequences": "\x1b[2J\x1b[1;1H\x1b]0;root@host\x07\x1b]52;c;cm0gLXJmIH4=\x07\x1bP$q\x1b\\birds",
    "link of OSC 8": "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "C1 control sequence": "\x9b2J\x9dbirds\x9c",
    "bidi override": "birds\u202egpj.exe\u2066birds\u2069\u200f\u061c",
    "carriage return": "birds\rproduction of birds is at version 7.",
    "backspaces": "birds\x08\x08\x08\x08\x08ok\x7f\0.zip",
    "lone surrogate": "birds\ud800",
    "line separators": "birds\u2028\u2029\x85\x0b\x0c",
    "tag characters": "birds\U000e0041\U000e007f",
    "markup of rich": "[link=http://evil.test]birds[/link][bold red]",
    "a line of its own": "birds\nbirds-1.zip: version 1 of birds, 1 B, sha256 0 verified.",
    "shell": "birds; touch pwned #$(touch pwned)`touch pwned`'\"",
    "option": "--url=http://evil.test",
    "path upwards": "../../../../../pwned",
    "absolute path": "/tmp/pwned",
    "long text": "birds " * 500,
    "templates": "{0}%s%n\\g<model>{model.__class__}",
    "requests with a shell in them": "PUT /v1/models/$(touch${IFS}pwned)/aliases/production can "
    "POST /v1/models/`id`/rebase/finish puts GET /v1/models/a;id/rebase POST /v1/jobs/$(id)/retry",
    "a request with options": 'As: POST /v1/models {"name": "a", "url": "http://evil.test", '
    '"recipe": "@/etc/passwd"}',
}
"""Texts in every field of every answer: the answer is valid, and so may be taken."""
NUMBERS: dict[str, Any] = {
    "number that is text": "1\x1b[2J",
    "number that is a path": "../../pwned",
    "broken number": 1.5,
    "number that is true": True,
    "huge number": 10**30,
    "number that is a list": [1],
    "number that is an object": {"a": 1},
}
"""Values in the place of every whole number: none may be taken."""


@dataclass(frozen=True)
class Hostile:
    """One attack.

    Attributes:
        reply: the whole answer to any request, from the sample's JSON.
        is_false: whether no command may end with 0.
    """

    reply: Callable[[Any], Reply]
    is_false: bool = True


def _change_values(value: Any, change: Change) -> Any:
    if isinstance(value, dict):
        return {
            key: one if key == "next_cursor" else _change_values(one, change)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_change_values(one, change) for one in value]
    return change(type(value).__name__, value)


def _build_mutant(change: Change, is_false: bool) -> Hostile:
    return Hostile(lambda sample: build_json_response(_change_values(sample, change)), is_false)


def build_json_response(value: Any, **headers: str) -> bytes:
    """Build an HTTP response in JSON."""
    return build_http_response(
        json.dumps(value).encode(), Content_Type="application/json", **headers
    )


def _add_hostile_keys(value: Any) -> Any:
    """Return a value whose dicts have hostile keys beside the real ones."""
    if isinstance(value, dict):
        return {
            **{key: _add_hostile_keys(one) for key, one in value.items()},
            "\x1b[2J../\u202e": "x",
        }
    return [_add_hostile_keys(one) for one in value] if isinstance(value, list) else value


def _nest_values(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        return (
            [value]
            if depth > 1
            else {key: _nest_values(one, depth + 1) for key, one in value.items()}
        )
    return {"a": value} if isinstance(value, list) and depth > 1 else value


def _repeat_forever(first: bytes, piece: bytes) -> Iterator[bytes]:
    yield first
    yield from itertools.repeat(piece)


def _build_paged_reply(cursor: Callable[[int], Any]) -> Callable[[Any], Reply]:
    count = itertools.count()
    return lambda sample: build_json_response(
        {**sample, "next_cursor": cursor(next(count))}
        if isinstance(sample, dict) and "items" in sample
        else sample
    )


def _build_constant_reply(reply: Reply | Callable[[], Reply]) -> Callable[[Any], Reply]:
    return lambda _sample: reply() if callable(reply) else reply


def _build_problem_reply(status: str, problem: Any, **headers: str) -> Callable[[Any], Reply]:
    return _build_constant_reply(
        build_http_response(json.dumps(problem).encode(), status, **headers)
    )


ESCAPE = "\x1b]0;x\x07\u202e" * 100
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(b'{"a": "' + b" " * (64 << 20) + b'"}', 9)
FLOOD = b"X-Flood: " + b"a" * 4000 + b"\r\n"

HOSTILE: dict[str, Hostile] = {
    **{f"text: {name}": _build_mutant(lambda kind, value, text=text: text if kind == "str" else value, False)
       for name, text in TEXTS.items()},
    **{f"number: {name}": _build_mutant(lambda kind, value, put=put: put if kind == "int" else value, False)
       for name, put in NUMBERS.items()},
    "number: below zero": _build_mutant(lambda kind, value: -1 if kind == "int" else value, False),
    "number: infinite": Hostile(
        lambda sample: build_http_response(json.dumps(sample).replace(": 1,", ": 1e999,").encode()), False
    ),
    "texts that are numbers": _build_mutant(lambda kind, value: 5 if kind == "str" else value, True),
    "texts that are "
    "objects": _build_mutant(lambda kind, value: {"a": "b"} if kind == "str" else value, True),
    "everything null": _build_mutant(lambda kind, value: None, False),
    "truth that is text": _build_mutant(lambda kind, value: "no" if kind == "bool" else value, False),
    "keys with escapes": Hostile(lambda sample: build_json_response(_add_hostile_keys(sample)), False),
    "lists that are objects": Hostile(lambda sample: build_json_response(_nest_values(sample)), False),
    "an empty object": Hostile(_build_constant_reply(build_json_response({})), False),
    "null": Hostile(_build_constant_reply(build_json_response(None))),
    "a list": Hostile(_build_constant_reply(build_json_response([1, 2]))),
    "a text": Hostile(_build_constant_reply(build_json_response("\x1b[2J"))),
    "no body": Hostile(_build_constant_reply(build_http_response(b""))),
    "a page of HTML": Hostile(_build_constant_reply(build_http_response(b"<html>\x1b[2J</html>"))),
    "not UTF-8": Hostile(_build_constant_reply(build_http_response(b'{"a": "\xff\xfe\x9b"}'))),
    "nests too deep": Hostile(_build_constant_reply(build_http_response(b"[" * 200_000))),
    "not a number": Hostile(_build_constant_reply(build_http_response(b'{"id": NaN, "number": Infinity}'))),
    "a number of 5,000 "
    "digits": Hostile(_build_constant_reply(build_http_response(b'{"number": ' + b"9" * 5000 + b"}"))),
    "redirect to another host": Hostile(_build_constant_reply(build_http_response(b"", "302 Found", Location="http://127.0.0.1:9/x"))),
    "redirect to a file": Hostile(_build_constant_reply(build_http_response(b"", "308 Permanent Redirect", Location="file:///etc/passwd"))),
    "redirect with escapes": Hostile(_build_constant_reply(build_http_response(b"", "307 Temporary "
        "Redirect", Location="\x9b2J\xad"))),
    "redirect to nowhere": Hostile(_build_constant_reply(build_http_response(b"", "301 Moved Permanently"))),
    "not modified": Hostile(_build_constant_reply(build_http_response(b"", "304 Not Modified"))),
    "bomb of gzip": Hostile(_build_constant_reply(build_http_response(BOMB, Content_Encoding="gzip"))),
    "broken gzip": Hostile(_build_constant_reply(build_http_response(b"\x1f\x8b\x08\x00broken",
        Content_Encoding="gzip"))),
    "packed twice": Hostile(_build_constant_reply(build_http_response(gzip.compress(BOMB),
        Content_Encoding="gzip, gzip"))),
    "packed in an odd way": Hostile(_build_constant_reply(build_http_response(b"{}", Content_Encoding="\x9bx-evil"))),
    "endless body": Hostile(_build_constant_reply(lambda: _repeat_forever(HEAD + b'\r\n{"a": "', b"a" * 65536))),
    "endless chunks": Hostile(_build_constant_reply(lambda: _repeat_forever(CHUNKED,
        b"1000\r\n" + b" " * 4096 + b"\r\n"))),
    "endless chunk size": Hostile(_build_constant_reply(lambda: _repeat_forever(CHUNKED, b"0" * 4096))),
    "flood of headers": Hostile(_build_constant_reply(lambda: _repeat_forever(HEAD, FLOOD))),
    "endless header": Hostile(_build_constant_reply(lambda: _repeat_forever(HEAD + b"X: ", b"a" * 4096))),
    "cut off": Hostile(_build_constant_reply(lambda: iter([HEAD + b'Content-Length: 100\r\n\r\n{"a"']))),
    "hangs up": Hostile(_build_constant_reply(lambda: iter([]))),
    "no HTTP": Hostile(_build_constant_reply(lambda: iter([b"SSH-2.0-OpenSSH\x1b[2J\r\n\r\n"]))),
    "odd status": Hostile(_build_constant_reply(lambda: iter([b"HTTP/1.1 999999 \x1b[2J\r\n\r\n"]))),
    "length below zero": Hostile(_build_constant_reply(lambda: iter([HEAD + b"Content-Length: -1\r\n\r\n{}"]))),
    "two lengths": Hostile(_build_constant_reply(lambda: iter([HEAD + b"Content-Length: 2\r\nContent-Length: "
        b"9\r\n\r\n{}"]))),
    "problem with "
    "escapes": Hostile(_build_problem_reply("422 X", {"type": ESCAPE, "detail": ESCAPE, "title": ESCAPE,
        "errors": [{"field": ESCAPE, "message": ESCAPE}, ESCAPE, 5, None]}, X_Request_ID="\x9b2J")),
    "problem of other "
    "types": Hostile(_build_problem_reply("404 X", {"type": [1], "detail": {"a": 1}, "errors": {"a": 1}}), False),
    "problem that is a list": Hostile(_build_problem_reply("401 X", [ESCAPE] * 1000)),
    "problem without end": Hostile(_build_constant_reply(lambda: _repeat_forever(b"HTTP/1.1 500 "
        b"X\r\n\r\n", b"a" * 65536))),
    "problem that is a page": Hostile(_build_constant_reply(
        build_http_response(b"\x1b[2J\x9b\xe2\x80\xae" * 1000, "502 Bad Gateway"))),
    "pause that is no number": Hostile(_build_problem_reply("429 X", {"detail": "later"}, Retry_After="nan")),
    "pause without end": Hostile(_build_problem_reply("503 X", {"detail": "later"}, Retry_After="1e308")),
    "pause until a time without a "
    "zone": Hostile(_build_problem_reply("503 X", {}, Retry_After="Mon, 01 Jan 2029 00:00:00 -0000")),
    "pause until no time": Hostile(_build_problem_reply("503 X", {}, Retry_After="Mon, 99 Foo 99999 00:00:00 "
        "GMT")),
    "endless pages": Hostile(_build_paged_reply(lambda number: f"c{number}"), False),
    "pages that do not go on": Hostile(_build_paged_reply(lambda number: "same"), False),
    "cursor with controls": Hostile(_build_paged_reply(lambda number: f"{number}\r\nX: \x1b[2J"), False),
    "cursor that is an object": Hostile(_build_paged_reply(lambda number: {"a": number}), False),
    "huge cursor": Hostile(_build_paged_reply(lambda number: "a" * 1_000_000), False),
    "headers with escapes": Hostile(
        lambda sample: build_json_response(sample, ETag='"\x9b2J\xff"', X_Request_ID="\x85", Location="\x9b"), False
    ),
}  # fmt: skip
"""Every answer goes against every command."""
