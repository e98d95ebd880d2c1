"""Uploads that can be resumed."""

from typing_extensions import TypedDict


class UploadOut(TypedDict):
    """An upload that has begun: `offset` of its `length` bytes are here, and it is removed at `expires_at`.

    `filename`: as its Upload-Metadata names it; null: it names none.
    """

    id: str
    filename: str | None
    length: int
    offset: int
    expires_at: str
    created_at: str


class UploadPage(TypedDict):
    """A page of uploads that are neither submitted nor removed, newest first."""

    items: list[UploadOut]
    next_cursor: str | None
