"""Present numbers of classes in the parts of earlier versions.

Sums and features of a task have numbers of classes: those of the version that stored them. An edit
may number the classes otherwise, and stores only the tasks that it changes. The row of its version
has the new number of each former class, from which the numbers in older parts follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.database.tables import Version

GONE = -1
"""Number of a class that no longer exists."""


@dataclass(frozen=True)
class AncestorClassNumberMaps:
    """Maps from the class numbers in ancestors' stored parts to a version's present class numbers.

    Attributes:
        maps: present number of each former class, once for all versions that share it.
        by_version: id of a version → its place in `maps`. A version without a place has the present
            numbers.
    """

    maps: list[list[int]] = field(default_factory=list)
    by_version: Mapping[str, int] = field(default_factory=dict)

    def find_class_number_map(self, version_id: str) -> list[int] | None:
        """Find the map to present class numbers for an ancestor's parts; None if the numbers are
        unchanged.
        """
        map_index = self.by_version.get(version_id)
        return None if map_index is None else self.maps[map_index]


AS_STORED = AncestorClassNumberMaps()
"""Of a version whose ancestors' parts have the present numbers."""


def read_ancestor_class_number_maps(session: Session, version: Version) -> AncestorClassNumberMaps:
    """Read the maps from the class numbers in ancestors' parts to those of a version."""
    query = select(Version.number, Version.id, Version.parent, Version.class_numbers).where(
        Version.model_id == version.model_id, Version.number <= version.number
    )
    rows = {
        number: (key, parent, changed) for number, key, parent, changed in session.execute(query)
    }
    maps: list[list[int]] = []
    by_version: dict[str, int] = {}
    number: int | None = version.number
    while number is not None and number in rows:
        key, number, changed = rows[number]
        if maps:
            by_version[key] = len(maps) - 1
        if changed is not None:
            maps.append(compose_class_maps(changed, maps[-1]) if maps else changed)
    return AncestorClassNumberMaps(maps, by_version)


def map_former_to_new_class_numbers(sources: Sequence[Sequence[int]], former: int) -> list[int]:
    """Return the new number of each former class after a merge, drop or reorder.

    Args:
        sources: numbers of the former classes that each new class is made of.
        former: number of former classes.
    """
    numbers = [GONE] * former
    for new, source_numbers in enumerate(sources):
        for number in source_numbers:
            numbers[number] = new
    return numbers


def compose_class_maps(earlier: Sequence[int], later: Sequence[int]) -> list[int]:
    """Compose two maps of class numbers: first an earlier one, then a later one."""
    return [GONE if number == GONE else later[number] for number in earlier]
