"""Dependencies of route handlers: the authenticated caller and the parts of the service.

`Scrape`, `Predict`, `Read`, `Write` and `Admin` name the scope that a route needs. The check itself
happens in `api.authentication.guard`, before a byte of the body is read; these dependencies only return its
result. A route without one of them must be in `api.authentication.guard.OPEN_PATHS`, or the app does not start.

    @router.post("/v1/things", status_code=201, responses=responses(409))
    def create(body: ThingIn, actor: Write, db: Db) -> ThingOut: ...

A handler that needs several parts of the service takes `service: Service`; one that needs a single
part may take that part alone. Dependencies with parameters must be direct ones of the handler:
`api.authentication.guard` looks for the scope and for query parameters only there.

Handlers that read a body as a stream take a bare `IdempotentRequestIdentity` and describe the body in
`openapi_extra`.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Query, Request

from api.limits.heavy_work import HeavyWorkQueue
from core.database.session import Database
from core.jobs.worker_notification import WorkerNotifier
from core.recipe.catalogue import LazyRecipeCatalogue
from core.requests.actor import Actor
from core.requests.pages import DEFAULT_LIMIT, MAX_LIMIT
from core.requests.resources import UseCaseResources
from core.requests.response_cache import ResponseCache
from core.settings import Settings
from core.storage import ObjectStorage
from core.storage.blobs import Blobs


class ScopeDeclaringDependency:
    """FastAPI dependency that declares the scope a route needs, and returns the caller, whose scope
    `api.authentication.guard` has checked.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Actor:
        actor: Actor = request.state.actor
        return actor


# async, because FastAPI runs each plain function in a thread
async def _get_database(request: Request) -> Database:
    return request.app.state.database  # type: ignore[no-any-return]


async def _get_store(request: Request) -> ObjectStorage:
    return request.app.state.store  # type: ignore[no-any-return]


async def _get_blobs(request: Request) -> Blobs:
    return request.app.state.blobs  # type: ignore[no-any-return]


async def _get_settings(request: Request) -> Settings:
    return request.app.state.settings  # type: ignore[no-any-return]


async def _get_worker_notifier(request: Request) -> WorkerNotifier:
    return request.app.state.doorbell  # type: ignore[no-any-return]


async def _get_catalogue(request: Request) -> LazyRecipeCatalogue:
    # Return the catalogue itself, not its value: the first call may take seconds, so handlers make
    # it in their thread.
    return request.app.state.catalogue  # type: ignore[no-any-return]


async def _get_tensor_shape_work_queue(request: Request) -> HeavyWorkQueue:
    return request.app.state.shape_work  # type: ignore[no-any-return]


async def _get_picture_work_queue(request: Request) -> HeavyWorkQueue:
    return request.app.state.picture_work  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ServiceDependencies:
    """Database, store, settings and queues of the running service, as route handlers receive them.

    Attributes:
        catalogue: call it in a thread: the first call may take seconds.
        export_work, picture_work: limit heavy work, in turns between owners.
        kept_metrics: encoded accuracy matrices.
    """

    db: Database
    store: ObjectStorage
    blobs: Blobs
    settings: Settings
    bell: WorkerNotifier
    catalogue: LazyRecipeCatalogue
    export_work: HeavyWorkQueue
    picture_work: HeavyWorkQueue
    kept_metrics: ResponseCache

    def load_use_case_resources(self) -> UseCaseResources:
        """Return database, blobs and method catalogue for a use case. Slow at first: call it in a
        thread.
        """
        return UseCaseResources(self.db, self.blobs, self.catalogue())


async def _get_service_dependencies(request: Request) -> ServiceDependencies:
    state = request.app.state
    return ServiceDependencies(
        state.database,
        state.store,
        state.blobs,
        state.settings,
        state.doorbell,
        state.catalogue,
        state.export_work,
        state.picture_work,
        state.kept_metrics,
    )


Scrape = Annotated[Actor, Depends(ScopeDeclaringDependency("scrape"))]
Predict = Annotated[Actor, Depends(ScopeDeclaringDependency("predict"))]
Read = Annotated[Actor, Depends(ScopeDeclaringDependency("read"))]
Write = Annotated[Actor, Depends(ScopeDeclaringDependency("write"))]
Admin = Annotated[Actor, Depends(ScopeDeclaringDependency("admin"))]
Db = Annotated[Database, Depends(_get_database)]
ObjectStore = Annotated[ObjectStorage, Depends(_get_store)]
BlobStore = Annotated[Blobs, Depends(_get_blobs)]
Config = Annotated[Settings, Depends(_get_settings)]
CatalogueOf = Annotated[LazyRecipeCatalogue, Depends(_get_catalogue)]
ShapeWork = Annotated[HeavyWorkQueue, Depends(_get_tensor_shape_work_queue)]
PictureWork = Annotated[HeavyWorkQueue, Depends(_get_picture_work_queue)]
Bell = Annotated[WorkerNotifier, Depends(_get_worker_notifier)]
Service = Annotated[ServiceDependencies, Depends(_get_service_dependencies)]

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Rows at most")]
Cursor = Annotated[
    str | None, Query(max_length=300, description="`next_cursor` of the page before")
]
LIMIT: int = DEFAULT_LIMIT
"""Default of a `Limit` parameter: `limit: Limit = LIMIT`."""


@dataclass(frozen=True)
class ListPageQuery:
    """Page size and cursor of a list request."""

    limit: int
    cursor: str | None


async def _gather_list_page_query_parameters(
    limit: Limit = LIMIT, cursor: Cursor = None
) -> ListPageQuery:
    return ListPageQuery(limit, cursor)


Page = Annotated[ListPageQuery, Depends(_gather_list_page_query_parameters)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same request with the same key is done once",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
