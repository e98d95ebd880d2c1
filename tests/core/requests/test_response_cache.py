"""Answers are kept by what they were made of, within a bound of bytes."""

from collections.abc import Callable
from hashlib import sha256

from core.requests.response_cache import ResponseCache


def fail_if_called() -> bytes:
    raise AssertionError("it is kept")


def return_body(body: bytes) -> Callable[[], bytes]:
    return lambda: body


def test_an_answer_of_the_same_digest_is_not_made_again() -> None:
    kept = ResponseCache(10)
    made = kept.get_or_build_response(b"a", return_body(b"body"))
    assert (made.body, made.tag) == (b"body", f'"{sha256(b"body").hexdigest()}"')
    assert kept.get_or_build_response(b"a", fail_if_called) is made
    assert kept.get_or_build_response(b"b", return_body(b"other")).body == b"other"


def test_what_was_used_longest_ago_goes_first_when_the_bytes_are_too_many() -> None:
    kept = ResponseCache(10)
    for digest in (b"a", b"b"):
        kept.get_or_build_response(digest, return_body(b"12345"))
    kept.get_or_build_response(b"a", fail_if_called)
    kept.get_or_build_response(b"c", return_body(b"12345"))
    assert (
        kept.get_or_build_response(b"a", fail_if_called).body
        == kept.get_or_build_response(b"c", fail_if_called).body
        == b"12345"
    )
    assert kept.get_or_build_response(b"b", return_body(b"again")).body == b"again"


def test_an_answer_larger_than_all_room_is_given_and_not_kept() -> None:
    kept = ResponseCache(10)
    kept.get_or_build_response(b"a", return_body(b"12345"))
    assert len(kept.get_or_build_response(b"large", return_body(b"x" * 11)).body) == 11
    assert kept.get_or_build_response(b"a", fail_if_called).body == b"12345"
    assert kept.get_or_build_response(b"large", return_body(b"made again")).body == b"made again"
