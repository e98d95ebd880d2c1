"""The page that Prometheus reads; any key may."""

from fastapi import APIRouter, Request, Response

from api.dependencies import Db, Read
from api.observe import CONTENT_TYPE
from core.requests.queue import figures

router = APIRouter(tags=["operation"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request, actor: Read, db: Db) -> Response:
    """Queue, jobs and versions from the database; latencies of this process."""
    del actor
    page = request.app.state.metrics.page(figures(db), request.app.version)
    return Response(page, headers={"Content-Type": CONTENT_TYPE})
