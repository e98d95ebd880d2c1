"""The API process: `uvicorn --factory api.app:create_app`.

Assembles the parts of the service and manages their lifetimes. It holds no rules of its own: routes
translate HTTP, and the rooms of `core` decide. It never imports torch.
"""

import copy
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

import structlog
from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy import select
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from api import problems
from api.authentication.access import Authenticator
from api.authentication.guard import GuardServices, wrap_route_in_guard
from api.damage import DatabaseDamageMonitor
from api.description.docs import add_openapi_routes
from api.description.guide import add_guide_routes
from api.description.openapi import build_openapi_document
from api.field_errors import list_invalid_fields
from api.limits.fair_share import FairRequestSlots
from api.limits.heavy_work import HeavyWorkQueue
from api.limits.predict_limits import PredictKeyLimiter
from api.limits.rate import OwnerRateLimiter
from api.pages import admin as admin_pages
from api.pages import adopt as adopt_page
from api.pages import compare as compare_page
from api.pages import edits as edits_page
from api.pages import errors
from api.pages import first_look as first_look_page
from api.pages import first_model as first_model_page
from api.pages import job as job_page
from api.pages import login as login_page
from api.pages import model as model_page
from api.pages import models as models_page
from api.pages import new_model as new_model_page
from api.pages import predict as predict_page
from api.pages import rebase as rebase_page
from api.pages import submit as submit_page
from api.pages import task as task_page
from api.pages import webhooks as webhooks_page
from api.pages.parts import gate_checks as checks_page
from api.periodic_tasks import CachedBlobCopySweeper, KeyUseRecorder
from api.predict.concurrency import PredictConcurrencyLimiter
from api.predict.predictor import PredictionHelperClient
from api.routes import (
    aliases,
    bases,
    catalogue,
    compare,
    edits,
    events,
    images,
    jobs,
    metrics,
    models,
    predict,
    rebase,
    tasks,
    uploads,
    versions,
    webhooks,
)
from api.routes.service import audit, health, keys, prometheus, usage
from api.server.boundary import RequestIdAndErrorMiddleware
from api.server.cors import CorsMiddleware
from api.server.loopback import is_loopback_host
from api.server.observe import LatencyMiddleware
from api.server.stopping import StopFlag
from api.static_files import add_static_file_route
from api.uploads.tus import TusVersionMiddleware
from core.database.migrate import require_current_schema
from core.database.polling import PollingDatabaseReads
from core.database.session import REQUEST_STATEMENT_S, Database
from core.database.tables import Owner
from core.errors import PerennialError, ProcessCannotStart
from core.files import spool
from core.files.permissions import UMASK, make_data_and_new_files_private
from core.jobs.job_response import EncodedJobCache
from core.jobs.worker_notification import WorkerNotifier
from core.keys.keys import ADMIN_OWNER, ensure_admin_key_and_write_file
from core.logging import configure_logging
from core.predictions.predictions import VersionCache
from core.processes.garbage import exclude_existing_objects_from_gc
from core.processes.start_requirements import (
    find_sqlite_file_of_url,
    prepare_data_directory_and_check_startup,
)
from core.recipe.catalogue import LazyRecipeCatalogue
from core.recipe.resolve import list_recipe_paths
from core.requests.actor import Actor
from core.requests.response_cache import ResponseCache
from core.retention.damage import DatabaseDamageMarks
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.versions.metrics import KEPT_BYTES

log = structlog.get_logger(__name__)

SWITCH_S = 0.0005
"""Thread switch interval in seconds. A computing thread delays the event loop by at most this much
per switch; with Python's default of 5 ms the delays of several thread hops add up.
"""
ROUTERS = (
    health.router,
    # The routes of the most frequent requests first: each route before the right one takes time.
    jobs.router,
    predict.router,
    events.router,
    models.router,
    tasks.router,
    images.router,
    uploads.router,
    versions.router,
    compare.router,
    aliases.router,
    edits.router,
    rebase.router,
    metrics.router,
    bases.router,
    catalogue.router,
    keys.router,
    audit.router,
    usage.router,
    webhooks.router,
    prometheus.router,
    login_page.router,
    models_page.router,
    # Before the page of a model, whose path would take `new` for a model's name.
    new_model_page.router,
    adopt_page.router,
    checks_page.router,
    rebase_page.router,
    predict_page.router,
    submit_page.router,
    first_look_page.router,
    first_model_page.router,
    model_page.router,
    compare_page.router,
    edits_page.router,
    task_page.router,
    job_page.router,
    webhooks_page.router,
    admin_pages.router,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the API's FastAPI application.

    Args:
        settings: None: read them from the environment. The process is then the server, and freezes
            its imports (`core.processes.garbage`).

    Raises:
        RuntimeError: authentication is off and the address is not a loopback one, or a route has no
            scope.
    """
    if settings is None:
        # Configure logging first: reading the settings may already log.
        configure_logging("api")
        settings = Settings()
        try:
            prepare_data_directory_and_check_startup(settings)
        except ProcessCannotStart as error:
            sys.exit(error.detail)
        exclude_existing_objects_from_gc()
    # Without keys, everybody who reaches the address would be the administrator.
    if settings.auth == "off" and not is_loopback_host(settings.host):
        raise RuntimeError(
            f"PERENNIAL_AUTH=off needs a loopback PERENNIAL_HOST, not {settings.host}."
        )
    app = FastAPI(
        title="Perennial",
        version=read_installed_service_version(),
        docs_url=None,  # `add_openapi_routes` serves these
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_run_lifespan_with_restricted_umask,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
        },  # `api.server.observe` measures
    )
    app.state.settings = settings
    app.state.stopping = StopFlag()
    app.state.catalogue = LazyRecipeCatalogue(settings)
    app.state.shape_work = HeavyWorkQueue(settings.shape_helpers)
    app.state.export_work = HeavyWorkQueue(settings.export_builds)
    app.state.picture_work = HeavyWorkQueue(images.MOST)
    app.state.encoded_jobs = EncodedJobCache()
    app.state.kept_metrics = ResponseCache(KEPT_BYTES)
    _add_guarded_routes(app, FairRequestSlots(settings))
    add_openapi_routes(app)
    add_guide_routes(app)
    add_static_file_route(app)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_middleware(RequestIdAndErrorMiddleware)
    app.add_middleware(TusVersionMiddleware)  # outside Boundary, so that it sees problems too
    if settings.allowed_origins:
        app.add_middleware(CorsMiddleware, origins=settings.allowed_origins)  # likewise
    app.add_middleware(LatencyMiddleware)  # the outermost
    app.openapi = lambda: build_openapi_document(app)  # type: ignore[method-assign]
    return app


def _add_guarded_routes(app: FastAPI, share: FairRequestSlots) -> None:
    guard_services = GuardServices(
        access=lambda: app.state.access,
        rate=lambda: app.state.rate,
        limits=lambda: app.state.predict_limits,
        share=share,
    )
    for router in ROUTERS:
        for route in router.routes:
            if not isinstance(route, APIRoute):
                raise RuntimeError(f"{route} is not an API route.")
            # Add copies of the routers' own routes rather than including the routers, which would
            # add a layer of matching. The guard wraps the handler of each copy because one process
            # may create several apps.
            guarded_route = copy.copy(route)
            wrap_route_in_guard(guarded_route, guard_services)
            app.router.routes.append(guarded_route)


@asynccontextmanager
async def _run_lifespan_with_restricted_umask(app: FastAPI) -> AsyncIterator[None]:
    umask = os.umask(UMASK)
    try:
        async with _run_service_lifespan(app):
            yield
    finally:
        os.umask(umask)  # Restore it for a process that runs the app embedded.


@asynccontextmanager
async def _run_service_lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    configure_logging("api")
    sys.setswitchinterval(SWITCH_S)
    open_to_others = await to_thread.run_sync(make_data_and_new_files_private, settings.data_dir)
    if open_to_others is not None:
        log.warning("data directory open to others", advice=open_to_others)
    db = Database(settings.resolved_database_url, statement_s=REQUEST_STATEMENT_S)
    # Requests on an outdated schema would fail half-way.
    await to_thread.run_sync(require_current_schema, db)
    secret = await to_thread.run_sync(ensure_admin_key_and_write_file, db, settings.data_dir)
    if secret is not None:
        _print_first_admin_key(secret, settings)
    # A client waits for each response, so a silent store is given up sooner than by a worker.
    store = open_object_store(settings, waited_for=True)
    if settings.resolved_store_url.startswith("file:"):
        await to_thread.run_sync(store.create_folder_or_bucket)  # The migration creates buckets.
    app.state.database = db
    app.state.damage = DatabaseDamageMonitor(find_sqlite_file_of_url(settings))
    app.state.damage.start_database_check()
    app.state.store = store
    app.state.blobs = Blobs(store, settings.make_folder("cache"), marks=DatabaseDamageMarks(db))
    app.state.doorbell = WorkerNotifier(settings, db)
    app.state.polling = PollingDatabaseReads(settings.resolved_database_url)
    app.state.uploads = {}
    app.state.predict_limiter = PredictConcurrencyLimiter(settings)
    app.state.predictor = PredictionHelperClient(settings)
    app.state.version_cache = VersionCache(db, app.state.polling)
    app.state.predict_limits = PredictKeyLimiter(db)
    # A process that was killed could not remove the files of its uploads.
    await to_thread.run_sync(spool.remove_abandoned_spool_files, settings.make_folder("spool"))
    anyone = (
        await to_thread.run_sync(_find_caller_without_authentication, db)
        if settings.auth == "off"
        else None
    )
    app.state.access = Authenticator(app.state.polling, anyone)
    app.state.rate = (
        OwnerRateLimiter(settings.max_requests_per_s, settings.broker_url_with_password)
        if settings.max_requests_per_s
        else None
    )
    app.state.doorbell.start_sending_notifications()
    # After the server has set its handlers of signals, which this passes the signals on to.
    app.state.stopping.install_signal_handlers()
    # Building the catalogue takes seconds after an update: start before the first request needs it.
    threading.Thread(
        target=_load_recipe_catalogue_at_startup,
        args=(app.state.catalogue,),
        name="catalogue",
        # A daemon, so that a slow catalogue does not keep the process from ending.
        daemon=True,
    ).start()
    copies = CachedBlobCopySweeper(db, app.state.blobs)
    async with KeyUseRecorder(db, app.state.access), copies:
        yield
    # An app embedded in another thread gets no signal; its streams end by this.
    app.state.stopping.mark_stopping()
    await app.state.polling.close()
    if app.state.rate is not None:
        await app.state.rate.close()
    await to_thread.run_sync(app.state.doorbell.close)
    await to_thread.run_sync(app.state.predictor.close)
    await to_thread.run_sync(db.close)


def _print_first_admin_key(secret: str, settings: Settings) -> None:
    file = settings.data_dir.absolute() / "admin-key"
    # Print the key itself only on a terminal: files and journals are kept for years and read by
    # others.
    key_location = f"{secret} (also in {file})" if sys.stdout.isatty() else f"in the file {file}"
    print(f"First start: your admin key is {key_location}.", flush=True)


def _load_recipe_catalogue_at_startup(catalogue: LazyRecipeCatalogue) -> None:
    try:
        catalogue()
    # The service starts all the same: the first request that needs the catalogue makes it.
    except (PerennialError, OSError) as error:
        log.warning("catalogue not made yet", error=str(error)[:500])


def read_installed_service_version() -> str:
    """Return the installed version of this service; `0` in a checkout that is not installed."""
    try:
        return metadata.version("perennial-service")
    except metadata.PackageNotFoundError:
        return "0"


def _find_caller_without_authentication(db: Database) -> Actor:
    """Return the caller to assume while authentication is off: the first administrator."""
    with db.read() as session:
        owner = session.scalars(select(Owner.id).where(Owner.name == ADMIN_OWNER)).one()
    return Actor(owner, None, "admin")


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = error.detail if isinstance(error.detail, str) else None
    extra = dict(error.headers or {})
    if error.status_code == 404 and detail == "Not Found":
        detail = f"There is nothing at {request.url.path[:200]}."
    if error.status_code == 405:
        # Starlette names the methods of one route alone, and each method here has its own route.
        allowed = _list_allowed_http_methods(request)
        extra["Allow"] = ", ".join(allowed)
        detail = f"{request.method} is not possible here; use {' or '.join(allowed)}."
    status, headers, body = problems.convert_http_status_to_problem(error.status_code, detail)
    return _build_problem_response(request, (status, {**extra, **headers}, body))


def _build_problem_response(
    request: Request, problem: tuple[int, dict[str, str], bytes]
) -> Response:
    """Return a problem as a response: an HTML page for routes of pages."""
    if errors.is_page_request(request.scope):
        problem = errors.render_problem_page_or_redirect_to_login(request.scope, problem)
    status, headers, body = problem
    return Response(body, status, headers)


def _list_allowed_http_methods(request: Request) -> list[str]:
    methods: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    route = request.scope.get("route")
    catalogue = request.app.state.catalogue.content_if_loaded
    recipe = () if catalogue is None else list_recipe_paths(catalogue)
    fields = list_invalid_fields(error, route if isinstance(route, APIRoute) else None, recipe)
    first = fields[0]
    detail = (
        f"{first['field'] or 'The body'}: "
        f"{first['message']}{'' if first['message'].endswith('?') else '.'}"
    )
    if len(fields) > 1:
        detail += f" {len(fields) - 1} more in errors."
    status, headers, _ = problems.convert_http_status_to_problem(422)
    body = problems.encode_problem_json("invalid", "Invalid request", 422, detail, fields)
    return _build_problem_response(request, (status, headers, body))
