"""The OpenAPI document: FastAPI's, completed with the responses that every route can give.

The guard and the boundary respond for all routes (401, 403, 422, 500, 503, 507 …). Those responses
are described here once instead of by each handler.
"""

from typing import Any, TypedDict

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import JsonValue, TypeAdapter

from api.authentication.guard import OPEN_PATHS
from api.description.documented_routes import RouteWithDeferredSchemas
from api.description.operations import OPERATIONS
from api.problems import describe_problem_in_openapi
from api.schemas.tasks import FromUpload
from core.contract.error import Problem

DESCRIPTION = """Keeps a deployed image classifier current: labelled batches in, measured versions out.

Send `Authorization: Bearer pk_…`. Errors are `application/problem+json` (RFC 9457). Long work answers 202
with `Location` and `Retry-After`."""

NAMED: dict[str, type] = {"Problem": Problem, "FromUpload": FromUpload}
"""Schemas that no route declares and that descriptions mention."""
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


def build_openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app, which is built on the first call."""
    if app.openapi_schema is None:
        # The schemas of responses are built only now: see `api.description.documented_routes`.
        for route in app.routes:
            if isinstance(route, RouteWithDeferredSchemas):
                route.add_response_schemas()
        document = get_openapi(
            title="Perennial", version=app.version, description=DESCRIPTION, routes=app.routes
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name, shape in NAMED.items():
            schema = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
            for part, definition in schema.pop("$defs", {}).items():
                schemas.setdefault(part, definition)
            schemas[name] = schema
        # Errors of validation are problems here (`api.field_errors`), not FastAPI's own objects.
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An access key, `pk_…`"}
        }
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if method in METHODS:
                    _complete_openapi_operation(path, operation)
                    default_id = operation["operationId"]
                    operation["operationId"] = OPERATIONS.get((method.upper(), path), default_id)
        app.openapi_schema = document
    return app.openapi_schema


class _OpenApiOperation(TypedDict, total=False):
    """The parts of an OpenAPI operation that `build_openapi_document` fills in."""

    responses: dict[str, JsonValue]
    security: list[dict[str, list[str]]]
    parameters: list[dict[str, JsonValue]]
    requestBody: JsonValue


def _complete_openapi_operation(path: str, operation: _OpenApiOperation) -> None:
    responses = operation["responses"]
    statuses = {400, 431, 500, 503}
    if path not in OPEN_PATHS:
        operation["security"] = [{"key": []}]
        statuses |= {401, 403, 422, 429, 507}
    if "{" in path:
        statuses.add(404)
    if "{model}" in path or any(one["name"] == "model" for one in operation.get("parameters", [])):
        # An administrator's model name may be ambiguous: several owners can use it.
        statuses.add(409)
    if "requestBody" in operation:
        statuses |= {408, 413, 415}
    elif "422" in responses and "HTTPValidationError" in str(responses["422"]):
        del responses["422"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status in statuses:
        responses.setdefault(str(status), describe_problem_in_openapi(status))
    operation["responses"] = dict(sorted(responses.items()))
