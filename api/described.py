"""Routes that answer with a `Response`: the schemas of their answers serve the OpenAPI document alone.

FastAPI makes them with each route, which took a third of the time that the API needs to start; here they are made when
somebody asks for the document.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from fastapi.utils import create_model_field

MODEL = "model"
"""The key of `responses=` that names the shape of an answer."""


class DescribedRoute(APIRoute):
    """A route that knows the shapes of its answers and makes their schemas in `add_schemas`."""

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
        plain = {
            status: {key: value for key, value in answer.items() if key != MODEL}
            for status, answer in declared.items()
        }
        super().__init__(path, endpoint, response_model=None, responses=plain, **options)
        self.responses = declared
        self.response_model = response_model

    def add_schemas(self) -> None:
        """Make the schemas of the answers, as FastAPI does with its routes."""
        make = partial(create_model_field, mode="serialization")
        if self.response_model:
            self.response_field = make(name=f"Response_{self.unique_id}", type_=self.response_model)
        self.response_fields = {
            status: make(name=f"Response_{status}_{self.unique_id}", type_=answer[MODEL])
            for status, answer in self.responses.items()
            if MODEL in answer
        }


def make_router(*tags: str, **options: Any) -> APIRouter:
    """Return a router of `DescribedRoute`s with these tags."""
    return APIRouter(tags=[*tags], route_class=DescribedRoute, **options)
