"""Routes of the catalogue: which methods and architectures there are, and what they take."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.answers import json_answer
from api.dependencies import CatalogueOf, Read
from api.schemas.catalogue import ArchitectureList, MethodList
from api.schemas.common import Json
from core.errors import NotFound

router = APIRouter(tags=["catalogue"])


@router.get("/v1/methods", response_model=MethodList)
def list_methods(actor: Read, catalogue: CatalogueOf) -> Response:
    """All methods, with the JSON Schemas of their hyper-parameters and of the recipe around them."""
    del actor
    known = catalogue()
    return json_answer(
        {
            "items": [{"name": name, **entry} for name, entry in sorted(known["methods"].items())],
            "next_cursor": None,
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
def list_architectures(actor: Read, catalogue: CatalogueOf) -> Response:
    """All architectures, with the JSON Schemas of their hyper-parameters."""
    del actor
    known = catalogue()["architectures"]
    items = [{"name": name, **entry} for name, entry in sorted(known.items())]
    return json_answer({"items": items, "next_cursor": None})
