"""One page of a list, and the request for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perennial import responses
from perennial.errors import BadAnswer
from perennial.guard import drop_unsafe_header_value, quote_refused_value
from perennial.shapes import convert_from_json

if TYPE_CHECKING:
    from perennial._async.http import AsyncHttp
    from perennial.frames import DataFrame

T = TypeVar("T")
PAGE = 200
"""Default number of items per page."""


@dataclass(frozen=True)
class PaginatedListQuery(Generic[T]):
    """A paginated list of the API: URL path, query parameters and type of its items.

    Attributes:
        kind: type of its items.
        path: its URL path.
        params: query parameters, such as `limit`; None: the default of the service, or `PAGE`.
    """

    kind: type[T]
    path: str
    params: Mapping[str, Any]


class AsyncPage(Generic[T]):
    """One page of a list; iterating over it continues with the following pages.

    Attributes:
        data: its items.
        has_next: True if a page follows.
    """

    def __init__(
        self,
        http: AsyncHttp,
        of: PaginatedListQuery[T],
        data: list[T],
        cursor: str | None,
        number: int,
    ) -> None:
        self._http, self._of, self._cursor, self._number = http, of, cursor, number
        self.data, self.has_next = data, cursor is not None

    def __repr__(self) -> str:
        more = ", and more follow" if self.has_next else ""
        return f"<{type(self).__name__}: {len(self.data)} of {self._of.path}{more}>"

    async def next_page(self) -> AsyncPage[T]:
        """Request the page after this one.

        Raises:
            LookupError: this is the last page.
            BadAnswer: the service's cursor does not advance, or there are too many pages.
        """
        if self._cursor is None:
            raise LookupError(f"This is the last page of {self._of.path}: look at has_next first.")
        return await request_list_page(self._http, self._of, self._cursor, self._number + 1)

    async def __aiter__(self) -> AsyncIterator[T]:
        page = self
        while True:
            for item in page.data:
                yield item
            if not page.has_next:
                return
            page = await page.next_page()

    def to_pandas(self) -> DataFrame:
        """Return the items of this page as a pandas DataFrame, one row each.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        from perennial.frames import build_data_frame_of_items

        return build_data_frame_of_items(self.data, self._of.kind)


async def request_list_page(
    http: AsyncHttp, list_query: PaginatedListQuery[T], cursor: str | None = None, number: int = 1
) -> AsyncPage[T]:
    """Request the page of a list that begins at `cursor`; None: the first page.

    Raises:
        BadAnswer: the response is not a page, or its cursor does not advance.
    """
    # Otherwise a hostile service could keep the loop going with ever new cursors.
    if number > responses.MAX_PAGES:
        raise BadAnswer(
            f"The service's list {list_query.path} has more than {responses.MAX_PAGES} pages; the rest was "
            f"not read."
        )
    # In this order, so that the caller's limit replaces PAGE, and nothing replaces the cursor.
    page = await http.get(
        object, list_query.path, {"limit": PAGE, **list_query.params, "cursor": cursor}
    )
    if not isinstance(page, dict) or not isinstance(page.get("items"), list):
        raise BadAnswer(f"The service's answer to {list_query.path} is no list.")
    following = page.get("next_cursor")
    # The cursor is sent back in a URL, and a repeated one would make the loop endless.
    if following is not None and (
        not isinstance(following, str)
        or following == cursor
        or not drop_unsafe_header_value(following)
    ):
        raise BadAnswer(
            f"The service's list {list_query.path} does not go on: its cursor is {quote_refused_value(following)}."
        )
    return AsyncPage(
        http,
        list_query,
        [convert_from_json(list_query.kind, item) for item in page["items"]],
        following,
        number,
    )
