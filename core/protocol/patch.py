"""What a person sends of a recipe or an architecture: any JSON object, until `core.recipe` has checked it.

`/openapi.json` names the fields that it may have all the same. They are not checked where the body is read, since the
catalogue alone knows what is allowed, and says it in words for people.
"""

from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from core.protocol.answers.architecture import ArchitectureChoice
from core.protocol.answers.recipe import RecipeOut


class _ShownAs:
    """Marks a type whose JSON Schema is that of another, or of a merge patch of it (RFC 7396).

    In a patch any field may be left out, or null, which resets it; a method may be a string, its name.
    """

    def __init__(self, shape: Any, patch: bool = False) -> None:
        self._shape, self._patch = shape, patch

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        shape = handler(TypeAdapter(self._shape).core_schema)
        return _patch_of(shape, handler) if self._patch else shape


def _patch_of(shape: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """The JSON Schema of a merge patch of objects of this one, through references and alternatives."""
    shape = {key: value for key, value in handler.resolve_ref_schema(shape).items() if key != "required"}
    if "anyOf" in shape:
        shape["anyOf"] = [_patch_of(one, handler) for one in shape["anyOf"]]
    if "properties" in shape:
        fields = {name: _patch_of(field, handler) for name, field in shape["properties"].items()}
        shape["properties"] = {name: {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()}
        if "method" in fields:
            shape["properties"]["method"]["anyOf"].append({"type": "string"})
    return shape


RecipePatch = TypeAliasType(
    "RecipePatch",
    Annotated[
        dict[str, object],
        _ShownAs(RecipeOut, patch=True),
        Field(
            description="A recipe patch; GET /v1/methods has the schemas. A string for method is its name, null resets."
        ),
    ],
)
ArchitectureIn = TypeAliasType("ArchitectureIn", Annotated[dict[str, object], _ShownAs(ArchitectureChoice)])
