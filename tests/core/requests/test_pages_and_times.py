"""Cursors and times in the contract's forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Invalid
from core.requests.pages import cut_list_page_from_mapping, decode_page_cursor, encode_page_cursor
from core.requests.timestamps import format_rfc3339, parse_rfc3339


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_cursor_of_a_number_comes_back(value: int) -> None:
    assert decode_page_cursor(encode_page_cursor(value), int) == value


@pytest.mark.parametrize(
    "cursor", ["", "x", "%", "WzFd", "W10", "WyJhIiwgImIiXQ", "ä", "W3RydWVd", "=" * 9]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid):
        decode_page_cursor(cursor, str)


def test_a_cursor_beyond_64_bits_is_refused() -> None:
    with pytest.raises(Invalid):
        decode_page_cursor(encode_page_cursor(2**64), int)


@pytest.mark.parametrize("limit", [1, 2, 3, 200])
def test_a_list_in_memory_comes_in_pages(limit: int) -> None:
    items = {name: name.upper() for name in "abc"}
    seen, cursor = [], None
    while True:
        page = cut_list_page_from_mapping(items, limit, cursor)
        assert 0 < len(page.rows) <= limit
        seen += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == list(items.values())


@pytest.mark.parametrize(
    ("limit", "cursor"), [(0, None), (201, None), (1, encode_page_cursor("z")), (1, "x")]
)
def test_a_page_in_memory_refuses_what_it_does_not_know(limit: int, cursor: str | None) -> None:
    with pytest.raises(Invalid):
        cut_list_page_from_mapping({"a": "A"}, limit, cursor)


def test_times_are_rfc_3339_in_utc() -> None:
    assert format_rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert format_rfc3339(1795248000.25) == "2026-11-21T08:00:00.250000Z"
    assert format_rfc3339(None) is None


@given(st.floats(0, 4e9))
def test_a_time_comes_back_to_a_microsecond(at: float) -> None:
    assert abs(parse_rfc3339(format_rfc3339(at)) - at) < 2e-6


@pytest.mark.parametrize(
    "text", ["2026-11-21", "2026-11-21T08:00:00", "now", "2026-13-01T00:00:00Z", "1"]
)
def test_a_time_without_offset_or_sense_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_rfc3339(text)
