"""Route for the caller's own key and owner."""

from fastapi import Request, Response

from api.answers import json_answer
from api.dependencies import Config, Db, Read
from api.described import make_router
from core.protocol.answers.me import MeOut
from core.requests.me import describe_caller

router = make_router("keys")


@router.get("/v1/me", response_model=MeOut)
def read(request: Request, actor: Read, db: Db, settings: Config) -> Response:
    """Return the owner of this key, what it may do, and the service's properties."""
    return json_answer(describe_caller(db, settings, actor, request.app.version))
