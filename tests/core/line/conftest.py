"""The desk of `tests/core/work`: a database, a store, and a child whose results are made up."""

from tests.core.work.conftest import desk

__all__ = ["desk"]
