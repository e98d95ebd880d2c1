"""`/ui`: an overview of all models."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from api.dependencies import CatalogueOf, Cursor, Db, Read
from api.pages.parts.render import render_page
from api.pages.parts.svg import HEIGHT, WIDTH, draw_sparkline
from core.models import model_deletion, models

router = APIRouter(include_in_schema=False)

ROWS = 50


@dataclass(frozen=True)
class Filters:
    """The models of a page: a text in their names, their order, and where the page begins."""

    q: str
    sort: Literal["newest", "oldest"]
    cursor: str | None


async def _build_model_filters(
    q: Annotated[
        str, Query(max_length=63, description="Only models with this text in their name")
    ] = "",
    sort: Annotated[
        Literal["newest", "oldest"], Query(description="Order of the models")
    ] = "newest",
    cursor: Cursor = None,
) -> Filters:
    return Filters(q, sort, cursor)


@router.get("/ui")
def show_models(
    request: Request,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    filters: Annotated[Filters, Depends(_build_model_filters)],
    deleted: Annotated[
        str | None, Query(max_length=40, description="A model that was just deleted")
    ] = None,
) -> Response:
    """Show name, production, accuracy, last job and number of pending decisions of each model."""
    model_page = models.list_models(
        db,
        catalogue(),
        actor,
        ROWS,
        filters.cursor,
        models.Listing(
            filters.q.strip() or None, summary=True, newest_first=filters.sort == "newest"
        ),
    )
    sparklines = {
        one["id"]: draw_sparkline(one["summary"]["acc_line"])
        for one in model_page["items"]
        if one["summary"] is not None
    }
    context: dict[str, object] = {
        "models": model_page["items"],
        "next_cursor": model_page["next_cursor"],
        "lines": sparklines,
    }
    context["deleted"] = model_deletion.name_of_deleted(db, actor, deleted) if deleted else None
    context |= {**vars(filters), "width": WIDTH, "height": HEIGHT}
    return render_page(request, "models.html", context)
