"""Recipe patches and architectures of requests: JSON objects until `core.recipe` checks them.

`/openapi.json` still lists the fields that they may have. They are not checked when the body is
parsed, because only the catalogue knows what is allowed, and `core.recipe` words the errors for
people.
"""

from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.recipe import RecipeOut


class _JsonSchemaOverride:
    """Marker of a type whose JSON Schema is that of another type, or of its merge patch (RFC 7396).

    In a patch, any field may be missing, or null, which resets it; a method may be a string, its
    name.
    """

    def __init__(self, shape: Any, patch: bool = False) -> None:
        self._shape, self._patch = shape, patch

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        shape = handler(TypeAdapter(self._shape).core_schema)
        return _build_merge_patch_schema(shape, handler) if self._patch else shape


def _build_merge_patch_schema(
    shape: JsonSchemaValue, handler: GetJsonSchemaHandler
) -> JsonSchemaValue:
    """Return the JSON Schema of a merge patch, through references and alternatives."""
    shape = {
        key: value for key, value in handler.resolve_ref_schema(shape).items() if key != "required"
    }
    if "anyOf" in shape:
        shape["anyOf"] = [
            _build_merge_patch_schema(alternative, handler) for alternative in shape["anyOf"]
        ]
    if "properties" in shape:
        fields = {
            name: _build_merge_patch_schema(field, handler)
            for name, field in shape["properties"].items()
        }
        shape["properties"] = {
            name: {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()
        }
        if "method" in fields:
            shape["properties"]["method"]["anyOf"].append({"type": "string"})
    return shape


# A named alias, so that `/openapi.json` has its long schema once.
RecipePatch = TypeAliasType(
    "RecipePatch",
    Annotated[
        dict[str, object],
        _JsonSchemaOverride(RecipeOut, patch=True),
        Field(
            description="A recipe patch; GET /v1/methods has the schemas. A string for method is "
            "its name, null resets."
        ),
    ],
)
ArchitectureIn = TypeAliasType(
    "ArchitectureIn", Annotated[dict[str, object], _JsonSchemaOverride(ArchitectureChoice)]
)
