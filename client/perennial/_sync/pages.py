"""Lists that are read page by page. `_async/pages.py` is its hand-written counterpart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from perennial._sync.page import PaginatedListQuery, Page, request_list_page

if TYPE_CHECKING:
    from perennial._sync.http import Http
    from perennial.frames import DataFrame

T = TypeVar("T")


class Pages(Generic[T]):
    """A list: iterating goes over all items; `data` and `has_next` describe its first page.

    The first page is requested when it is first needed, and cached. A loop requests the list again.
    """

    def __init__(self, http: Http, of: PaginatedListQuery[T]) -> None:
        self._http, self._of = http, of
        self._first: Page[T] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._of.path}>"

    def __iter__(self) -> Iterator[T]:
        yield from request_list_page(self._http, self._of)

    def first_page(self) -> Page[T]:
        """Return the first page, from the cache if possible."""
        if self._first is None:
            self._first = request_list_page(self._http, self._of)
        return self._first

    @property
    def data(self) -> list[T]:
        """Items of the first page."""
        return self.first_page().data

    @property
    def has_next(self) -> bool:
        """True if a second page follows."""
        return self.first_page().has_next

    def next_page(self) -> Page[T]:
        """Return the second page.

        Raises:
            LookupError: there is only one page.
        """
        return self.first_page().next_page()

    def to_pandas(self) -> DataFrame:
        """Return all items as a pandas DataFrame, one row each.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        from perennial.frames import build_data_frame_of_items

        return build_data_frame_of_items(list(self), self._of.kind)
