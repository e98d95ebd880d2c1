"""Columns that hold a document of `core.protocol`: rows have it typed, the database has JSON."""

from typing import Any

from sqlalchemy import JSON, Dialect
from sqlalchemy.types import TypeDecorator

from core.protocol.document import Document


class DocumentColumn(TypeDecorator[Document]):
    """A JSON column whose values are documents of one type; no document is SQL NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, document: type[Document]) -> None:
        super().__init__()
        self.document = document

    def process_bind_param(self, value: Document | None, dialect: Dialect) -> Any:
        """What a row holds of the document."""
        return None if value is None else value.to_json()

    def process_result_value(self, value: Any, dialect: Dialect) -> Document | None:
        """The document of what a row holds."""
        return None if value is None else self.document.from_json(value)
