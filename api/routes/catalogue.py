"""Routes for the catalogue: the available methods and architectures, and their parameters."""

from typing import Annotated

from fastapi import Path, Response

from api.dependencies import CatalogueOf, Page, Read
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from core.contract.responses.catalogue import (
    ArchitectureList,
    ArchitectureOut,
    MethodList,
    MethodOut,
)
from core.errors import NotFound
from core.requests.pages import cut_list_page_from_mapping

router = make_tagged_api_router("catalogue")


@router.get("/v1/methods", response_model=MethodList)
def list_methods(actor: Read, catalogue: CatalogueOf, page: Page) -> Response:
    """List all methods, with the JSON Schemas of their hyper-parameters and of the recipe."""
    # Declared for the guard alone: everybody sees the same catalogue.
    del actor
    catalogue_value = catalogue()
    items: dict[str, MethodOut] = {
        name: {"name": name, **entry} for name, entry in sorted(catalogue_value["methods"].items())
    }
    item_page = cut_list_page_from_mapping(items, page.limit, page.cursor)
    response: MethodList = {
        "items": list(item_page.rows),
        "next_cursor": item_page.next_cursor,
        "recipe": catalogue_value["recipe"],
        "optimizers": catalogue_value["optimizers"],
        "presets": catalogue_value["presets"],
    }
    return build_json_response(response)


@router.get("/v1/methods/{name}", response_model=MethodOut)
def read_method(
    name: Annotated[str, Path(max_length=63)], actor: Read, catalogue: CatalogueOf
) -> Response:
    """Return one method."""
    del actor
    entry = catalogue()["methods"].get(name)
    if entry is None:
        raise NotFound(f"There is no method {name!r}.")
    method: MethodOut = {"name": name, **entry}
    return build_json_response(method)


@router.get("/v1/architectures", response_model=ArchitectureList)
def list_architectures(actor: Read, catalogue: CatalogueOf, page: Page) -> Response:
    """List all architectures, with the JSON Schemas of their hyper-parameters."""
    del actor
    architectures = catalogue()["architectures"]
    items: dict[str, ArchitectureOut] = {
        name: {"name": name, **entry} for name, entry in sorted(architectures.items())
    }
    item_page = cut_list_page_from_mapping(items, page.limit, page.cursor)
    response: ArchitectureList = {
        "items": list(item_page.rows),
        "next_cursor": item_page.next_cursor,
    }
    return build_json_response(response)
