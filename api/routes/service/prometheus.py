"""Route for Prometheus, with a key of scope scrape: its metrics cover all owners."""

from fastapi import Request, Response

from api.dependencies import Db, Scrape
from api.description.documented_routes import make_tagged_api_router
from api.server.observe import render_metrics_page
from core.jobs.queue import read_queue_and_service_metrics
from core.telemetry import CONTENT_TYPE

router = make_tagged_api_router("operation")


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def report_service_metrics(request: Request, actor: Scrape, db: Db) -> Response:
    """Return queue, jobs and versions from the database; latencies and failures of the API
    processes.
    """
    del actor
    return Response(
        render_metrics_page(read_queue_and_service_metrics(db), request.app.version),
        headers={"Content-Type": CONTENT_TYPE},
    )
