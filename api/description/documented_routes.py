"""Routes that return a `Response` and declare the schemas of their responses for OpenAPI only.

FastAPI builds these schemas with each route, which took a third of the API's start-up time. Here
they are built when the OpenAPI document is first requested.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from fastapi.utils import create_model_field

MODEL = "model"
"""The key in `responses=` for the type of a response."""


class RouteWithDeferredSchemas(APIRoute):
    """An API route whose OpenAPI response schemas are built later, in `add_response_schemas`."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        response_model: Any = None,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        declared = dict(responses or {})
        # Hide the types from FastAPI, which would build their schemas now.
        plain = {
            status: {key: value for key, value in response.items() if key != MODEL}
            for status, response in declared.items()
        }
        super().__init__(path, endpoint, response_model=None, responses=plain, **options)
        # After FastAPI has set up the route: the document still needs the types.
        self.responses = declared
        self.response_model = response_model

    def add_response_schemas(self) -> None:
        """Build the OpenAPI schemas of a route's responses, as FastAPI does for its own routes."""
        make = partial(create_model_field, mode="serialization")
        if self.response_model:
            self.response_field = make(name=f"Response_{self.unique_id}", type_=self.response_model)
        self.response_fields = {
            status: make(name=f"Response_{status}_{self.unique_id}", type_=response[MODEL])
            for status, response in self.responses.items()
            if MODEL in response
        }


def make_tagged_api_router(*tags: str, **options: Any) -> APIRouter:
    """Return a router that creates `RouteWithDeferredSchemas`s with these OpenAPI tags."""
    return APIRouter(tags=[*tags], route_class=RouteWithDeferredSchemas, **options)
