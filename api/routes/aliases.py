"""Routes of aliases."""

from fastapi import APIRouter, Response

from api.answers import json_answer
from api.dependencies import LIMIT, Cursor, Db, Limit, Read, Write
from api.problems import answers
from api.schemas.common import ModelPath
from api.schemas.versions import AliasHistory, AliasIn, AliasOut, AliasPath, RollbackIn
from core.requests import aliases

router = APIRouter(tags=["aliases"])


@router.put("/v1/models/{model}/aliases/{alias}", response_model=AliasOut)
def set_alias(model: ModelPath, alias: AliasPath, body: AliasIn, actor: Write, db: Db) -> Response:
    """Point an alias at a version."""
    return json_answer(aliases.set_alias(db, actor, model, alias, version=body.version, reason=body.reason))


@router.get("/v1/models/{model}/aliases/{alias}/history", response_model=AliasHistory)
def history(
    model: ModelPath, alias: AliasPath, actor: Read, db: Db, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """An alias's moves, oldest first."""
    return json_answer(aliases.history(db, actor, model, alias, limit=limit, cursor=cursor))


@router.post("/v1/models/{model}/aliases/{alias}/rollback", response_model=AliasOut, responses=answers(409))
def rollback(
    model: ModelPath, alias: AliasPath, actor: Write, db: Db, body: RollbackIn | None = None
) -> Response:
    """Point an alias at its previous target whose gate passed."""
    reason = body.reason if body is not None else None
    return json_answer(aliases.rollback(db, actor, model, alias, reason=reason))
