"""Routes of the catalogue: which methods and architectures there are, and what they take."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.answers import json_answer
from api.dependencies import LIMIT, CatalogueOf, Cursor, Limit, Read
from api.schemas.catalogue import ArchitectureList, MethodList
from api.schemas.common import Json
from core.errors import NotFound
from core.requests.pages import page_of

router = APIRouter(tags=["catalogue"])


@router.get("/v1/methods", response_model=MethodList)
def list_methods(
    actor: Read, catalogue: CatalogueOf, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """All methods, with the JSON Schemas of their hyper-parameters and of the recipe around them."""
    del actor
    known = catalogue()
    items = [{"name": name, **entry} for name, entry in sorted(known["methods"].items())]
    return json_answer(
        {
            **page_of(items, "name", limit, cursor),
            "recipe": known["recipe"],
            "optimizers": known["optimizers"],
            "presets": known["presets"],
        }
    )


@router.get("/v1/methods/{name}", response_model=Json)
def read_method(name: Annotated[str, Path(max_length=63)], actor: Read, catalogue: CatalogueOf) -> Response:
    """One method."""
    del actor
    entry = catalogue()["methods"].get(name)
    if entry is None:
        raise NotFound(f"There is no method {name!r}.")
    return json_answer({"name": name, **entry})


@router.get("/v1/architectures", response_model=ArchitectureList)
def list_architectures(
    actor: Read, catalogue: CatalogueOf, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """All architectures, with the JSON Schemas of their hyper-parameters."""
    del actor
    known = catalogue()["architectures"]
    items = [{"name": name, **entry} for name, entry in sorted(known.items())]
    return json_answer(page_of(items, "name", limit, cursor))
