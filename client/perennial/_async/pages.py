"""Lists that are read page by page. `_sync/pages.py` is its hand-written counterpart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perennial._async.page import AsyncPage, PaginatedListQuery, request_list_page

if TYPE_CHECKING:
    from perennial._async.http import AsyncHttp
    from perennial.frames import DataFrame

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """A paginated list: `async for` iterates over all items, `await` returns the first page.

    No request is sent before that.
    """

    def __init__(self, http: AsyncHttp, of: PaginatedListQuery[T]) -> None:
        self._http, self._of = http, of

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._of.path}>"

    def __await__(self) -> Generator[Any, None, AsyncPage[T]]:
        return request_list_page(self._http, self._of).__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for item in await request_list_page(self._http, self._of):
            yield item

    async def to_pandas(self) -> DataFrame:
        """Return all items as a pandas DataFrame, one row each.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        from perennial.frames import build_data_frame_of_items

        return build_data_frame_of_items([item async for item in self], self._of.kind)
