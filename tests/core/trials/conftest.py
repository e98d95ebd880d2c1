"""A desk with rows, a store and made-up results, for the tests of this room."""

from tests.core.desk import desk, post, without_fsync, worker

__all__ = ["desk", "post", "without_fsync", "worker"]
