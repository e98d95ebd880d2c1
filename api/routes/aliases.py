"""Routes for aliases."""

from fastapi import Response

from api.dependencies import Bell, Db, Page, Read, Write
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.versions import AliasIn, AliasPath, RollbackIn
from core.contract.responses.versions.alias import AliasHistory, AliasOut
from core.versions import aliases

router = make_tagged_api_router("aliases")


@router.put(
    "/v1/models/{model}/aliases/{alias}",
    response_model=AliasOut,
    responses=build_openapi_problem_responses(409),
)
def set_alias(
    model: ModelPath, alias: AliasPath, body: AliasIn, actor: Write, db: Db, bell: Bell
) -> Response:
    """Point an alias at a version. `production` stays on an older version until `…/follow` is
    called.
    """
    decision = aliases.AliasMoveReasonAndSeenVersion(body.reason)
    moved = aliases.set_alias(db, actor, model, alias, body.version, decision)
    return _notify_workers_and_build_alias_response(moved, bell)


@router.get(
    "/v1/models/{model}/aliases/{alias}/history", summary="History", response_model=AliasHistory
)
def list_alias_moves(
    model: ModelPath,
    alias: AliasPath,
    actor: Read,
    db: Db,
    page: Page,
) -> Response:
    """List an alias's moves, oldest first."""
    return build_json_response(
        aliases.list_alias_moves(db, actor, model, alias, limit=page.limit, cursor=page.cursor)
    )


@router.post(
    "/v1/models/{model}/aliases/{alias}/rollback",
    summary="Rollback",
    response_model=AliasOut,
    responses=build_openapi_problem_responses(409),
)
def roll_back_alias(
    model: ModelPath,
    alias: AliasPath,
    actor: Write,
    db: Db,
    bell: Bell,
    body: RollbackIn | None = None,
) -> Response:
    """Point an alias at an earlier target; `production` stays there until `…/follow` is called."""
    request = body or RollbackIn()
    decision = aliases.AliasMoveReasonAndSeenVersion(request.reason)
    moved = aliases.roll_alias_back(db, actor, model, alias, decision, request.version)
    return _notify_workers_and_build_alias_response(moved, bell)


@router.post("/v1/models/{model}/aliases/{alias}/follow", summary="Follow", response_model=AliasOut)
def follow_lineage(
    model: ModelPath, alias: AliasPath, actor: Write, db: Db, bell: Bell
) -> Response:
    """Move `production` to the newest version of the lineage, and let it follow from now on."""
    return _notify_workers_and_build_alias_response(
        aliases.let_production_follow_lineage(db, actor, model, alias), bell
    )


@router.delete("/v1/models/{model}/aliases/{alias}", summary="Delete", status_code=204)
def delete_alias(model: ModelPath, alias: AliasPath, actor: Write, db: Db) -> Response:
    """Remove an alias that you created; `production` and `latest` cannot be removed."""
    aliases.delete_alias(db, actor, model, alias)
    return Response(status_code=204)


def _notify_workers_and_build_alias_response(
    move: tuple[AliasOut, str | None], bell: Bell
) -> Response:
    alias_response, job = move
    if job is not None:
        bell.notify_workers(job)  # its turn may have come
    return build_json_response(alias_response)
