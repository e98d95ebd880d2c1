"""Lists of the service, page by page."""

import asyncio
import inspect
import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
import stub

from perennial import AsyncPerennial, Perennial
from perennial._sync.pages import Pages

KEYS = [
    {
        "id": f"key_{n}",
        "name": f"n{n}",
        "scope": "read",
        "owner": "own_1",
        "owner_name": "o",
        "created_at": "x",
    }
    for n in range(5)
]


def answer_with_pages(asked: stub.Asked) -> stub.Said:
    """Answer with five keys, in pages of `limit`."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(asked.path).query).items()}
    limit, start = int(query["limit"]), int(query.get("cursor", 0))
    following = str(start + limit) if start + limit < len(KEYS) else None
    return stub.Said(body={"items": KEYS[start : start + limit], "next_cursor": following})


def test_a_page_has_its_items_and_whether_another_follows() -> None:
    with stub.run_stub_with_client(answer_with_pages) as (_, client):
        page = client.keys.list(limit=2).first_page()
        seen = [([key.name for key in page.data], page.has_next)]
        while page.has_next:
            page = page.next_page()
            seen.append(([key.name for key in page.data], page.has_next))
    assert seen == [(["n0", "n1"], True), (["n2", "n3"], True), (["n4"], False)]


def test_a_list_shows_its_first_page_and_asks_for_it_once() -> None:
    with stub.run_stub_with_client(answer_with_pages) as (service, client):
        keys = client.keys.list(limit=2)
        assert not service.asked
        assert [key.name for key in keys.data] == ["n0", "n1"] and keys.has_next
        assert [key.name for key in keys.next_page().data] == ["n2", "n3"]
    assert len(service.asked) == 2


@pytest.mark.parametrize("limit", [None, 1, 2, 5])
def test_a_loop_goes_through_all_pages_each_time(limit: int | None) -> None:
    with stub.run_stub_with_client(answer_with_pages) as (_, client):
        keys = client.keys.list(limit=limit)
        assert (
            [key.name for key in keys] == [key.name for key in keys] == [f"n{n}" for n in range(5)]
        )


def test_the_last_page_has_no_next() -> None:
    with (
        stub.run_stub_with_client(answer_with_pages) as (_, client),
        pytest.raises(LookupError, match="has_next"),
    ):
        client.keys.list().next_page()


def test_a_list_to_await_gives_its_first_page() -> None:
    async def list_keys_by_page(url: str) -> tuple[list[str], list[str]]:
        async with AsyncPerennial("k", base_url=url) as client:
            page = await client.keys.list(limit=3)
            following = await page.next_page()
            names = [key.name for key in page.data] + [key.name for key in following.data]
            return names, [key.name async for key in client.keys.list(limit=2)]

    with stub.run_stub(answer_with_pages) as service:
        by_page, by_loop = asyncio.run(list_keys_by_page(service.url))
    assert by_page == by_loop == [f"n{n}" for n in range(5)]


def test_a_limit_is_of_one_page() -> None:
    with stub.run_stub_with_client(answer_with_pages) as (service, client):
        list(client.keys.list(limit=2))
    assert [parse_qs(urlsplit(asked.path).query)["limit"] for asked in service.asked] == [["2"]] * 3


def test_a_page_says_how_much_of_what_it_is() -> None:
    with stub.run_stub_with_client(answer_with_pages) as (_, client):
        assert repr(client.keys.list()) == "<Pages of /v1/keys>"
        assert (
            repr(client.keys.list(limit=2).first_page()) == "<Page: 2 of /v1/keys, and more follow>"
        )


def test_every_list_of_the_client_takes_a_limit() -> None:
    """Of all verbs whose answer is pages: what is asked for has the limit that was said."""
    asked: list[object] = []

    def answer_with_empty_page(request: stub.Asked) -> stub.Said:
        asked.append(parse_qs(urlsplit(request.path).query).get("limit"))
        return stub.Said(body=json.dumps({"items": [], "next_cursor": None}).encode())

    with stub.run_stub_with_client(answer_with_empty_page) as (_, client):
        verbs = _find_paged_verbs(client)
        assert len(verbs) >= 17
        for verb, arguments in verbs:
            assert list(verb(*arguments, limit=7)) == []
    assert asked == [["7"]] * len(verbs)


def _find_paged_verbs(client: Perennial) -> list[tuple[Callable[..., Pages[object]], list[object]]]:
    """Return the verbs that answer with pages, each with a value for every argument that it needs."""
    found = []
    for noun in (value for name, value in vars(client).items() if not name.startswith("_")):
        for name, verb in inspect.getmembers(noun, inspect.ismethod):
            signature = inspect.signature(verb)
            if name.startswith("_") or not str(signature.return_annotation).startswith("Pages["):
                continue
            needed = [
                one
                for one in signature.parameters.values()
                if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
            ]
            found.append((verb, [1 if "int" in str(one.annotation) else "x" for one in needed]))
    return found
