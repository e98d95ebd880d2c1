"""The desk of `tests/core/desk.py`: a database, a store, and a child whose results are made up."""

from tests.core.desk import desk

__all__ = ["desk"]
