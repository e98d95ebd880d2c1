"""The entry point `/`, for people who open the service's URL in a browser or with curl, and health
checks.

They need no key and reveal only the state of each part.
"""

from collections.abc import Callable

import structlog
from anyio import CapacityLimiter, create_task_group, move_on_after, to_thread
from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.exc import SQLAlchemyError

from api.damage import DatabaseDamageMonitor
from api.dependencies import Bell, Db, ObjectStore
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from core.contract.responses.health import Alive, Ready, Start
from core.database import sqlite_damage
from core.database.session import Database
from core.errors import PerennialError, ServiceDiskFull
from core.jobs import workers
from core.storage import ObjectStorage

router = make_tagged_api_router("health")
log = structlog.get_logger(__name__)

_TEXTS = {
    "key": "Every path under /v1 needs a key: `Authorization: Bearer pk_…`. The first start of the "
    "service made an admin key, kept in `admin-key` in its data directory; POST /v1/keys makes "
    "others.",
    "readme": "README.md, beside the code: its section “Use it on your own photos” has the first requests.",
}
PATHS = {
    "pages": "/ui",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/healthz",
    "ready": "/readyz",
    "models": "/v1/models",
    "methods": "/v1/methods",
}
LIMIT_S = 4.0
"""Seconds after which a part that has not answered counts as down."""
_checks = CapacityLimiter(32)
"""Threads of their own: all threads of requests may be waiting for the failed part."""


async def show_service_start(request: Request) -> Response:
    """List the service's entry points, or redirect a browser to the pages.

    Needs no key and reveals nothing about stored data.
    """
    root = request.scope.get("root_path", "").rstrip("/")
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{root}{PATHS['pages']}", 303)
    service = {"name": "Perennial", "version": request.app.version}
    return build_json_response(
        {**service, **{name: f"{root}{path}" for name, path in PATHS.items()}, **_TEXTS}
    )


router.get("/", summary="Start", response_model=Start)(show_service_start)
# Unlike Starlette, FastAPI answers HEAD only at routes that declare it.
router.head("/", summary="Start", response_model=Start, operation_id="head_start")(
    show_service_start
)


@router.get("/healthz", summary="Healthz", response_model=Alive)
async def report_health() -> Response:
    """Report that the process answers."""
    return build_json_response({"status": "ok"})


@router.get("/readyz", summary="Readyz", response_model=Ready, responses={503: {"model": Ready}})
async def report_readiness(request: Request, db: Db, store: ObjectStore, bell: Bell) -> Response:
    """Report whether the service is ready: database and store answer, and the database file is
    sound.

    An unavailable broker, a full store or a worker without its device is reported too, but the
    service stays ready.
    """
    damage: DatabaseDamageMonitor = request.app.state.damage
    parts: dict[str, str] = {}

    async def check_service_dependency(part: str, question: Callable[[], str]) -> None:
        # Set first: it stays if the check does not end in time.
        parts[part] = "unknown" if part == "workers" else "down"
        with move_on_after(LIMIT_S):  # The thread ends by its own limits.
            parts[part] = await to_thread.run_sync(
                question, abandon_on_cancel=True, limiter=_checks
            )

    async with create_task_group() as group:
        group.start_soon(
            check_service_dependency, "database", lambda: _probe_database_status(db, damage)
        )
        group.start_soon(check_service_dependency, "store", lambda: _probe_store_status(store))
        group.start_soon(check_service_dependency, "broker", bell.get_broker_status)
        group.start_soon(check_service_dependency, "workers", lambda: _probe_workers_status(db))
    ready = parts["database"] == "up" and parts["store"] != "down"
    damage_detail = (
        {"detail": damage.describe_database_damage()} if parts["database"] == "corrupt" else {}
    )
    ordered_parts = {part: parts[part] for part in ("database", "store", "broker", "workers")}
    return build_json_response(
        {"status": "ready" if ready else "not ready", **ordered_parts, **damage_detail},
        200 if ready else 503,
    )


def _probe_database_status(db: Database, damage: DatabaseDamageMonitor) -> str:
    if damage.found:
        return "corrupt"
    try:
        db.check_row_readable()
    except SQLAlchemyError as error:
        if sqlite_damage.is_sqlite_damage_error(error):
            damage.record_damage_error(error)
            return "corrupt"
        log.warning("database does not answer", error=str(error)[:300])
        return "down"
    return "up"


def _probe_workers_status(db: Database) -> str:
    try:
        with db.read() as session:
            return workers.read_workers_status(session, db.now(session))
    except SQLAlchemyError:  # reported by the database's own check
        return "unknown"


def _probe_store_status(store: ObjectStorage) -> str:
    try:
        store.check_store_usable()
    except ServiceDiskFull:
        return "full"
    except PerennialError as error:
        log.warning("store does not answer", error=error.detail)
        return "down"
    return "up"
