"""Resumable uploads."""

from typing_extensions import TypedDict


class UploadOut(TypedDict):
    """A resumable upload of which `offset` of `length` bytes have arrived. It expires at
    `expires_at`.

    `filename`: name in its Upload-Metadata; null: none.
    """

    id: str
    filename: str | None
    length: int
    offset: int
    expires_at: str
    created_at: str


class UploadPage(TypedDict):
    """A page of resumable uploads that are neither submitted nor removed, newest first."""

    items: list[UploadOut]
    next_cursor: str | None
