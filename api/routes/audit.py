"""Route for the audit trail, for administrators."""

from typing import Annotated, Literal

from fastapi import Query, Response

from api.answers import json_answer
from api.dependencies import LIMIT, Admin, Cursor, Db, Limit
from api.described import make_router
from api.problems import problem_responses
from core.protocol.answers.audit import AuditPage
from core.requests.audit import Wanted, list_audit
from core.requests.times import parse_rfc3339

router = make_router("audit")


@router.get("/v1/audit", response_model=AuditPage, responses=problem_responses(404))
def read(
    actor: Admin,
    db: Db,
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
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """List changes and who made them, oldest or newest first."""
    selection = Wanted(
        model, action, None if since is None else parse_rfc3339(since), order == "desc"
    )
    return json_answer(list_audit(db, actor, limit=limit, cursor=cursor, wanted=selection))
