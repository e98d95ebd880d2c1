"""Base of all documents: immutable, and tolerant of fields of older and newer versions."""

from collections.abc import Collection
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, JsonValue

JsonObject = dict[str, JsonValue]
"""A JSON object without fixed fields."""
Number = int | float
"""A number as in JSON: 1 is not read as 1.0."""


class Document(BaseModel):
    """Base class of stored JSON objects with named fields; unknown fields are preserved.

    Fields that an older version did not write have defaults, and stay absent when the document is
    written again. Unknown fields are preserved.
    """

    # A service that was rolled back must not lose fields that a newer one wrote.
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Parse a stored JSON object to a document.

        Raises:
            pydantic.ValidationError: a field is missing or has another type.
        """
        return cls.model_validate(value)

    def to_json(self) -> dict[str, Any]:
        """Return the document as the JSON object to store: the fields that were set, and unknown
        ones.
        """
        # Without defaults, a document that is read and written again has the same bytes.
        return self.model_dump(mode="json", exclude_unset=True)

    def dump_named_fields_to_json(self, names: Collection[str]) -> JsonObject:
        """Return the named fields that were set, as they are stored in JSON."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(names))

    def get_explicitly_set_field_values(self) -> dict[str, Any]:
        """Return the fields that were set as objects by name, to construct another document from
        them.
        """
        names = type(self).model_fields
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def get_unknown_fields(self) -> dict[str, JsonValue]:
        """Return the fields of a stored document that its class does not define."""
        return dict(self.model_extra or {})


class StrictDocument(Document):
    """Base class of JSON documents that refuse unknown fields.

    Worker and job process have the same code version, so an unknown field is a mistake.
    """

    model_config = ConfigDict(extra="forbid")
