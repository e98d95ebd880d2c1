"""Routes of the catalogue: which methods and architectures there are, and what they take."""

from typing import Annotated

from fastapi import Path, Response

from api.answers import json_answer
from api.dependencies import LIMIT, CatalogueOf, Cursor, Limit, Read
from api.described import make_router
from core.errors import NotFound
from core.protocol.answers.catalogue import ArchitectureList, ArchitectureOut, MethodList, MethodOut
from core.requests.pages import page_of

router = make_router("catalogue")


@router.get("/v1/methods", response_model=MethodList)
def list_methods(
    actor: Read, catalogue: CatalogueOf, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """All methods, with the JSON Schemas of their hyper-parameters and of the recipe around them."""
    del actor
    known = catalogue()
    items: dict[str, MethodOut] = {
        name: {"name": name, **entry} for name, entry in sorted(known["methods"].items())
    }
    found = page_of(items, limit, cursor)
    answer: MethodList = {
        "items": list(found.rows),
        "next_cursor": found.next_cursor,
        "recipe": known["recipe"],
        "optimizers": known["optimizers"],
        "presets": known["presets"],
    }
    return json_answer(answer)


@router.get("/v1/methods/{name}", response_model=MethodOut)
def read_method(name: Annotated[str, Path(max_length=63)], actor: Read, catalogue: CatalogueOf) -> Response:
    """One method."""
    del actor
    entry = catalogue()["methods"].get(name)
    if entry is None:
        raise NotFound(f"There is no method {name!r}.")
    method: MethodOut = {"name": name, **entry}
    return json_answer(method)


@router.get("/v1/architectures", response_model=ArchitectureList)
def list_architectures(
    actor: Read, catalogue: CatalogueOf, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """All architectures, with the JSON Schemas of their hyper-parameters."""
    del actor
    known = catalogue()["architectures"]
    items: dict[str, ArchitectureOut] = {
        name: {"name": name, **entry} for name, entry in sorted(known.items())
    }
    found = page_of(items, limit, cursor)
    answer: ArchitectureList = {"items": list(found.rows), "next_cursor": found.next_cursor}
    return json_answer(answer)
