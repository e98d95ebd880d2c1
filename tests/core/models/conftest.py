"""An owner, a store and a model, for the tests of this room."""

from tests.core.office import actor, model, new_database, office, store

__all__ = ["actor", "model", "new_database", "office", "store"]
