"""The difference between two OpenAPI documents, in words."""

from typing import Any

from tests.before_after.openapi_words import list_differences

JSON = "application/json"


def build_document(paths: Any, schemas: Any) -> Any:
    return {"paths": paths, "components": {"schemas": schemas}}


def build_operation(parameters: list[Any], schema: Any) -> Any:
    return {"parameters": parameters, "responses": {"200": {"content": {JSON: {"schema": schema}}}}}


def build_parameter(name: str, **schema: Any) -> Any:
    return {"in": "query", "name": name, "schema": schema}


def test_routes_and_shapes_that_come_and_go_are_named() -> None:
    one = build_document({"/a": {"get": {}}}, {"Old": {"type": "string"}})
    other = build_document({"/a": {"post": {}}}, {"New": {"type": "string"}})
    assert list_differences(one, other) == [
        "route GET /a is removed",
        "route POST /a is added",
        "shape New is added",
        "shape Old is removed",
    ]


def test_parameters_answers_and_fields_are_named_with_their_types() -> None:
    job = {"type": "object", "properties": {"id": {"type": "string"}, "task": {"type": "integer"}}}
    after = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "maxLength": 40},
            "task": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "kinds": {"items": {"type": "string"}},
        },
        "required": ["kinds"],
    }
    ref = {"$ref": "#/components/schemas/Job"}
    one = build_document(
        {"/a": {"get": build_operation([build_parameter("state", type="string")], ref)}},
        {"Job": job},
    )
    other = build_document(
        {"/a": {"get": build_operation([build_parameter("kind", type="string")], {})}},
        {"Job": after},
    )
    assert list_differences(one, other) == [
        "route GET /a: answer 200 application/json was required Job, is required anything",
        "route GET /a: query parameter kind is added, optional string",
        "route GET /a: query parameter state is removed",
        'shape Job: field id was optional string, is optional string {"maxLength": 40}',
        "shape Job: field kinds is added, required list of string",
        "shape Job: field task was optional integer, is optional integer or null",
    ]


def test_prose_is_no_difference() -> None:
    one = build_document({}, {"Job": {"type": "string", "description": "A job."}})
    other = build_document({}, {"Job": {"type": "string", "title": "Job"}})
    assert list_differences(one, other) == []
