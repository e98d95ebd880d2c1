"""The list of upload formats."""

from core.database.tables import Task
from core.ingest.readers import registry


def test_every_reader_has_a_name_of_its_own_that_its_column_holds() -> None:
    names = [each.name for each in registry._ALL]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= Task.__table__.c.media_type.type.length


def test_no_two_readers_take_the_same_media_type() -> None:
    types = [media_type for each in registry._ALL for media_type in each.media_types]
    assert len(set(types)) == len(types) and all(each == each.lower() for each in types)
