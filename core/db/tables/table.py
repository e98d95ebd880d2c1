"""What all tables share: their base class, the types of columns, and indexes of a part of the rows."""

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Float, Index, Integer, MetaData, text
from sqlalchemy.orm import DeclarativeBase

JSON_COLUMN = JSON(none_as_null=True)
"""A missing value is SQL NULL, so that queries can ask for it."""
SERIAL = BigInteger().with_variant(Integer(), "sqlite")
"""A number that rises with each row: SQLite gives those to INTEGER keys alone."""


def partial_index(name: str, *columns: str, where: str, sqlite: str | None = None) -> Index:
    """An index of the few rows that `where` leaves; `sqlite`: the same as SQLite is asked, which compares the words."""
    return Index(name, *columns, sqlite_where=text(sqlite or where), postgresql_where=text(where))


class Table(DeclarativeBase):
    """Base of all tables; names constraints so that migrations can address them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        float: Float(53),
        int: BigInteger,
    }
