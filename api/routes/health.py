"""Routes of the health checks; they need no key and tell nothing but up or down."""

import structlog
from fastapi import APIRouter, Response
from sqlalchemy.exc import SQLAlchemyError

from api.answers import json_answer
from api.dependencies import Bell, Db, ObjectStore
from api.schemas.health import Alive, Ready
from core.errors import PerennialError

router = APIRouter(tags=["health"])
log = structlog.get_logger(__name__)


@router.get("/healthz", response_model=Alive)
async def healthz() -> Response:
    """Whether the process answers."""
    return json_answer({"status": "ok"})


@router.get("/readyz", response_model=Ready, responses={503: {"model": Ready}})
def readyz(db: Db, store: ObjectStore, bell: Bell) -> Response:
    """Whether database and store answer; a dead broker is told, but does not count."""
    parts = {"database": "up", "store": "up", "broker": bell.status()}
    try:
        db.check()
    except SQLAlchemyError as error:
        log.warning("database does not answer", error=str(error)[:300])
        parts["database"] = "down"
    try:
        store.check()
    except PerennialError as error:
        log.warning("store does not answer", error=error.detail)
        parts["store"] = "down"
    ready = parts["database"] == parts["store"] == "up"
    return json_answer({"status": "ready" if ready else "not ready", **parts}, 200 if ready else 503)
