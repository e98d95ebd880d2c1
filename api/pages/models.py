"""`/ui`: all models at a glance."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.dependencies import CatalogueOf, Cursor, Db, Read
from api.pages.render import page
from api.pages.svg import HEIGHT, WIDTH, sparkline
from core.requests import model_deletion, models

router = APIRouter(include_in_schema=False)

ROWS = 50


@router.get("/ui")
def show(
    request: Request,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    q: Annotated[str, Query(max_length=63, description="Only models with this text in their name")] = "",
    sort: Annotated[Literal["newest", "oldest"], Query(description="Order of the models")] = "newest",
    cursor: Cursor = None,
    deleted: Annotated[str | None, Query(max_length=40, description="A model that was just deleted")] = None,
) -> Response:
    """Name, production, accuracy and last job of each, and how many things wait for a person."""
    found = models.list_models(
        db, catalogue(), actor, ROWS, cursor, q=q.strip() or None, summary=True, newest_first=sort == "newest"
    )
    lines = {
        one["id"]: sparkline(one["summary"]["acc_line"])
        for one in found["items"]
        if one["summary"] is not None
    }
    told: dict[str, object] = {"models": found["items"], "next_cursor": found["next_cursor"], "lines": lines}
    told["deleted"] = model_deletion.name_of_deleted(db, actor, deleted) if deleted else None
    asked = {"q": q, "sort": sort, "cursor": cursor}
    return page(request, "models.html", {**told, **asked, "width": WIDTH, "height": HEIGHT})
