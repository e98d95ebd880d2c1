"""What all documents share: they are frozen, and what an older or newer version wrote beside the known fields
is kept."""

from collections.abc import Collection
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, JsonValue

JsonObject = dict[str, JsonValue]
"""A JSON object without fixed fields."""
Number = int | float
"""A number as JSON has it: what was written as 1 is not read as 1.0."""


class Document(BaseModel):
    """A JSON object with named fields.

    A field that a version did not write yet has a default, and stays absent when the document is written again.
    """

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read a document.

        Raises:
            pydantic.ValidationError: a field is missing or has another type.
        """
        return cls.model_validate(value)

    def to_json(self) -> dict[str, Any]:
        """The document as it is stored: exactly the fields that were given, those that have no name here too."""
        return self.model_dump(mode="json", exclude_unset=True)

    def fields_to_json(self, names: Collection[str]) -> JsonObject:
        """Those of the named fields that were given, as they are stored."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(names))

    def given(self) -> dict[str, Any]:
        """The named fields that were given, each as an object: to make another document of them."""
        names = type(self).model_fields
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def others(self) -> dict[str, JsonValue]:
        """The fields that have no name here."""
        return dict(self.model_extra or {})
