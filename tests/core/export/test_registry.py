"""The list of download formats."""

from core.database.tables import ExportedDownload
from core.export import registry


def test_every_format_has_a_name_of_its_own_that_its_column_holds() -> None:
    names = [each.name for each in registry._ALL]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= ExportedDownload.__table__.c.format.type.length
