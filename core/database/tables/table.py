"""Common parts of the tables: base class, column types, and partial indexes."""

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Float, Index, Integer, MetaData, text
from sqlalchemy.orm import DeclarativeBase

JSON_COLUMN = JSON(none_as_null=True)
"""JSON column that stores None as SQL NULL, so that queries can test for it."""
SERIAL = BigInteger().with_variant(Integer(), "sqlite")
"""A number that rises with each row; SQLite supports that only for INTEGER keys."""


def build_partial_index(name: str, *columns: str, where: str, sqlite: str | None = None) -> Index:
    """Return a database index that covers only the few rows that match `where`.

    Args:
        sqlite: the same condition for SQLite, which compares the text of conditions.
    """
    return Index(name, *columns, sqlite_where=text(sqlite or where), postgresql_where=text(where))


class DatabaseTable(DeclarativeBase):
    """Base class of all database tables; it names constraints so that migrations can address them."""

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
        # PostgreSQL's REAL has 24 bits, too few for seconds since 1970.
        float: Float(53),
        # Numbers of bytes exceed 32 bits.
        int: BigInteger,
    }
