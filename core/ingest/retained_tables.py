"""Possible label tables of a stream, retained while the rest goes by: a gzip is not read twice.

Files named labels.csv have a limit of their own, so that other files cannot displace them. Of other
names, a folder may have only a few with the same ending, since many are one for each image.
"""

from perennial.reading_rules.entries import UnreadableBatchError
from perennial.reading_rules.names import CSV_NAME
from perennial.reading_rules.tables import MAX_TABLE_BYTES, may_be_label_table_name

_MOST_ALIKE = 20
_MOST_FILES = 1000
_MOST_DEPTH = 4


class RetainedLabelTables:
    """Possible label tables of an archive that is read in one pass: bytes of files by number.

    There are at most `MAX_TABLE_BYTES` for labels.csv, and as many for all others.
    """

    def __init__(self) -> None:
        self._data: dict[int, bytes] = {}
        self._alike: dict[tuple[str, str], list[int]] = {}
        self._own_bytes = self._other_bytes = 0

    def can_retain_table(self, name: str, size: int) -> bool:
        """Return True if a file is a possible label table and there is room to retain it."""
        if _is_labels_csv_near_top(name):
            return self._own_bytes + size <= MAX_TABLE_BYTES
        return (
            may_be_label_table_name(name)
            and name.count("/") <= _MOST_DEPTH
            # One more than is retained, by which `retain_file` notices that there are too many.
            and len(self._alike.get(_get_folder_and_extension(name), ())) <= _MOST_ALIKE
            and len(self._data) < _MOST_FILES
            and self._other_bytes + size <= MAX_TABLE_BYTES
        )

    def retain_file(self, number: int, name: str, data: bytes) -> None:
        """Retain the bytes of a possible label table for which `can_retain_table` is true."""
        if _is_labels_csv_near_top(name):
            self._own_bytes += len(data)
            self._data[number] = data
            return
        alike = self._alike.setdefault(_get_folder_and_extension(name), [])
        # Dropped files still count, so that no further ones of the kind are retained.
        alike.append(number)
        if len(alike) <= _MOST_ALIKE:
            self._other_bytes += len(data)
            self._data[number] = data
            return
        for dropped in alike[:-1]:  # so many files are one for each image, and no tables
            self._other_bytes -= len(self._data.pop(dropped))

    def read_retained_file(self, number: int) -> bytes:
        """Return the bytes of a retained label table. Raises UnreadableBatchError if it was not
        retained.
        """
        if number not in self._data:
            raise UnreadableBatchError(
                f"The label tables of the archive take more than {MAX_TABLE_BYTES} bytes.",
                "too_large",
            )
        return self._data[number]


def _is_labels_csv_near_top(name: str) -> bool:
    return name.rsplit("/", 1)[-1] == CSV_NAME and name.count("/") <= 1


def _get_folder_and_extension(name: str) -> tuple[str, str]:
    folder, _, base = name.rpartition("/")
    return folder, base[base.rfind(".") :].lower()
