"""An owner with a model, and a desk with made-up results, for the tests of this room."""

from tests.core.desk import desk, post, without_fsync, worker
from tests.core.office import actor, model, new_database, office, store

__all__ = [
    "actor",
    "desk",
    "model",
    "new_database",
    "office",
    "post",
    "store",
    "without_fsync",
    "worker",
]
