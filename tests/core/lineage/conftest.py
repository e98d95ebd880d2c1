"""The desk of `tests/core/execution`: a database, a store, and a child whose results are made up."""

from tests.core.desk import desk

__all__ = ["desk"]
