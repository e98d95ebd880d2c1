"""Class names of sources that label by number."""

from collections.abc import Sequence

from perennial.pack.errors import PackError
from perennial.pack.text import quote_name


class NumberedClassNames:
    """Names of classes by number; without names, a class is called by its number."""

    def __init__(self, names: Sequence[str] | None, where: str) -> None:
        self._names, self._where = names, where

    def get_class_name(self, label: str | int, said_by: str) -> str:
        """Return the name of a class given by number; a label that is already a name stays
        unchanged.

        Raises:
            PackError: there is no class with this number.
        """
        # Negative numbers count as numbers, so that they are refused and not taken for names.
        if self._names is None or not str(label).removeprefix("-").isdecimal():
            return str(label)
        number = int(label)
        if not 0 <= number < len(self._names):
            raise PackError(
                f"{said_by} has the class {number}, but {self._where} names {len(self._names)} "
                f"classes, from 0 ({quote_name(self._names[0]) if self._names else 'none'}) on."
            )
        return self._names[number]
