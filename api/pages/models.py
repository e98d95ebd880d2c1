"""`/ui`: an overview of all models."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from api.dependencies import Cursor, Read, Service, ServiceDependencies
from api.pages.parts import forms
from api.pages.parts.live import read_newest_event_cursor
from api.pages.parts.render import get_root_path, render_page
from api.pages.parts.svg import HEIGHT, WIDTH, compute_sparkline_points
from core.contract.responses.model import ModelPage
from core.errors import PerennialError
from core.models import model_deletion, models
from core.packaged import sample_pictures
from core.requests.actor import Actor

router = APIRouter(include_in_schema=False)

ROWS = 50


@dataclass(frozen=True)
class ModelListFilters:
    """Name filter, order and cursor of the page that lists models."""

    q: str
    sort: Literal["newest", "oldest"]
    cursor: str | None


async def _gather_model_list_query_parameters(
    q: Annotated[
        str, Query(max_length=63, description="Only models with this text in their name")
    ] = "",
    sort: Annotated[
        Literal["newest", "oldest"], Query(description="Order of the models")
    ] = "newest",
    cursor: Cursor = None,
) -> ModelListFilters:
    return ModelListFilters(q, sort, cursor)


@router.get("/ui")
def show_models_page(
    request: Request,
    actor: Read,
    service: Service,
    filters: Annotated[ModelListFilters, Depends(_gather_model_list_query_parameters)],
    deleted: Annotated[
        str | None, Query(max_length=40, description="A model that was just deleted")
    ] = None,
) -> Response:
    """Show the list of models with their accuracy, last job and number of pending decisions.

    Without a model, show three ways to the first one.
    """
    events = read_newest_event_cursor(request, actor)
    listing = models.ModelListQuery(
        filters.q.strip() or None, summary=True, newest_first=filters.sort == "newest"
    )
    model_page = models.list_models(
        service.db, service.catalogue(), actor, ROWS, filters.cursor, listing
    )
    name = model_deletion.find_deleted_model_name(service.db, actor, deleted) if deleted else None
    notices = {"events": events, "deleted": name, "wrong": None}
    return _render_model_list(request, service, model_page, filters, notices)


def render_model_list_with_error(
    request: Request, actor: Actor, service: ServiceDependencies, error: PerennialError
) -> Response:
    """Show the list of models with the error for which a new model was refused."""
    events = read_newest_event_cursor(request, actor)
    listing = models.ModelListQuery(summary=True, newest_first=True)
    model_page = models.list_models(service.db, service.catalogue(), actor, ROWS, None, listing)
    filters = ModelListFilters("", "newest", None)
    notices = {"events": events, "deleted": None, "wrong": error.detail}
    return _render_model_list(request, service, model_page, filters, notices, error.status)


def _render_model_list(
    request: Request,
    service: ServiceDependencies,
    model_page: ModelPage,
    filters: ModelListFilters,
    notices: dict[str, str | None],
    status: int = 200,
) -> Response:
    context: dict[str, object] = {
        **notices,
        "models": model_page["items"],
        "next_cursor": model_page["next_cursor"],
        "lines": {
            one["id"]: compute_sparkline_points(one["summary"]["acc_line"])
            for one in model_page["items"]
            if one["summary"] is not None
        },
        "samples": [kind for kinds in sample_pictures.BATCHES.values() for kind in kinds],
        "of_class": sample_pictures.OF_CLASS,
        "most": service.settings.max_body_bytes,
        "types": forms.ARCHIVE_TYPES,
        "url": f"{request.url.scheme}://{request.url.netloc}{get_root_path(request.scope)}",
    }
    context |= {**vars(filters), "width": WIDTH, "height": HEIGHT}
    return render_page(request, "models.html", context, status)
