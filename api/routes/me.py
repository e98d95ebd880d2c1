"""Who asks."""

from fastapi import Request, Response

from api.answers import json_answer
from api.dependencies import Config, Db, Read
from api.described import make_router
from core.protocol.answers.me import MeOut
from core.requests.me import me

router = make_router("keys")


@router.get("/v1/me", response_model=MeOut)
def read(request: Request, actor: Read, db: Db, settings: Config) -> Response:
    """Whose key this is, what its owner may do, and what the service is."""
    return json_answer(me(db, settings, actor, request.app.version))
