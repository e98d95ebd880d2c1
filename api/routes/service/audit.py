"""Route for the audit trail, for administrators."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Response

from api.dependencies import Admin, Db, Page
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from core.contract.responses.audit import AuditPage
from core.requests.audit import AuditQuery, list_audit
from core.requests.timestamps import parse_rfc3339

router = make_tagged_api_router("audit")


@dataclass(frozen=True)
class AuditTrailFilters:
    """Filters and order of a request for the audit trail."""

    model: str | None
    action: str | None
    since: str | None
    order: Literal["asc", "desc"]


async def _gather_audit_query_parameters(
    model: Annotated[
        str | None, Query(max_length=63, description="Id or name; by id also of a deleted model")
    ] = None,
    action: Annotated[
        str | None,
        Query(
            pattern=r"^[a-z]+\.[a-z-]+$",
            max_length=40,
            description="Noun and verb, such as alias.set",
        ),
    ] = None,
    since: Annotated[
        str | None, Query(max_length=40, description="RFC 3339 time of the oldest row")
    ] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="asc: oldest first")] = "asc",
) -> AuditTrailFilters:
    return AuditTrailFilters(model, action, since, order)


@router.get(
    "/v1/audit",
    summary="Read",
    response_model=AuditPage,
    responses=build_openapi_problem_responses(404),
)
def list_audit_entries(
    actor: Admin,
    db: Db,
    filters: Annotated[AuditTrailFilters, Depends(_gather_audit_query_parameters)],
    page: Page,
) -> Response:
    """List changes and who made them, oldest or newest first."""
    since = None if filters.since is None else parse_rfc3339(filters.since)
    selection = AuditQuery(filters.model, filters.action, since, filters.order == "desc")
    return build_json_response(
        list_audit(db, actor, limit=page.limit, cursor=page.cursor, wanted=selection)
    )
