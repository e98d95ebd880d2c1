"""`/`: the entry point for people who open the service's URL in a browser or with curl."""

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from api.answers import build_json_response
from api.description.described import make_router
from core.contract.responses.health import Start

router = make_router("health")

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


async def list_entry_points(request: Request) -> Response:
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


router.get("/", summary="Start", response_model=Start)(list_entry_points)
# Unlike Starlette, FastAPI answers HEAD only at routes that declare it.
router.head("/", summary="Start", response_model=Start, operation_id="head_start")(
    list_entry_points
)
