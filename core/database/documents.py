"""Columns that hold a document of `core.contract`: typed in rows, JSON in the database."""

from typing import Any

from sqlalchemy import JSON, Dialect
from sqlalchemy.types import TypeDecorator

from core.contract.document import Document


class DocumentColumn(TypeDecorator[Document]):
    """Database column of JSON documents of one type; None is stored as SQL NULL."""

    impl = JSON(none_as_null=True)
    # Otherwise SQLAlchemy would compile each statement with such a column again.
    cache_ok = True

    def __init__(self, document: type[Document]) -> None:
        super().__init__()
        self.document = document

    def process_bind_param(self, value: Document | None, dialect: Dialect) -> Any:
        """Convert a document to the JSON that is stored."""
        return None if value is None else value.to_json()

    def process_result_value(self, value: Any, dialect: Dialect) -> Document | None:
        """Convert a stored JSON value to a document."""
        return None if value is None else self.document.from_json(value)
