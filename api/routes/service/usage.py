"""Route for usage, for administrators."""

from typing import Annotated, Literal

from fastapi import Query, Response

from api.dependencies import Admin, Db, Page
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from core.contract.responses.usage import UsagePage
from core.usage import usage_lists

router = make_tagged_api_router("usage")


@router.get("/v1/usage", summary="Read", response_model=UsagePage)
def list_usage(
    actor: Admin,
    db: Db,
    page: Page,
    by: Annotated[
        Literal["model", "owner"], Query(description="One item per model or per owner")
    ] = "model",
) -> Response:
    """Return counts and bytes per model or owner; those of owners were summed up at
    `measured_at`.
    """
    read_page = (
        usage_lists.list_usage_by_model if by == "model" else usage_lists.list_usage_by_owner
    )
    return build_json_response(read_page(db, actor, limit=page.limit, cursor=page.cursor))
