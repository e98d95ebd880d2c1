"""Routes for access keys: all of them, for administrators, and the caller's own."""

from typing import Annotated

from fastapi import Path, Request, Response

from api.authentication.access import Authenticator
from api.dependencies import Admin, Config, Db, Page, Read
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.owners import KeyIn
from core.contract.responses.key import KeyPage, NewKey
from core.contract.responses.me import MeOut
from core.keys import keys
from core.keys.keys import build_caller_response
from core.keys.predict_keys import RequestedKeyModelAndLimits

router = make_tagged_api_router("keys")

# A secret in a response must not stay in a cache.
NO_STORE = {"Cache-Control": "no-store"}


@router.post(
    "/v1/keys",
    summary="Create",
    status_code=201,
    response_model=NewKey,
    responses=build_openapi_problem_responses(409),
)
def create_key(body: KeyIn, actor: Admin, db: Db) -> Response:
    """Create a key; its secret is only in this response."""
    requested = keys.RequestedKey(
        body.name,
        body.scope,
        body.owner,
        body.expires_at,
        RequestedKeyModelAndLimits(
            body.model, body.alias, body.requests_per_s, body.images_per_day
        ),
    )
    return build_json_response(keys.create_key(db, actor, requested), 201, NO_STORE)


@router.get("/v1/keys", response_model=KeyPage)
def list_keys(actor: Admin, db: Db, page: Page) -> Response:
    """List all keys, without their secrets."""
    return build_json_response(keys.list_keys(db, actor, limit=page.limit, cursor=page.cursor))


@router.delete(
    "/v1/keys/{key}",
    summary="Revoke",
    status_code=204,
    responses=build_openapi_problem_responses(409),
)
def revoke_key(
    request: Request,
    key: Annotated[str, Path(description="Id of the key", max_length=40)],
    actor: Admin,
    db: Db,
) -> Response:
    """Revoke a key and stop its requests in progress; other API processes notice within seconds."""
    keys.revoke_key(db, actor, key)
    # This process would otherwise accept the key from its cache for another second.
    access: Authenticator = request.app.state.access
    access.forget_cached_key(key)
    return Response(status_code=204)


@router.get("/v1/me", summary="Read", response_model=MeOut)
def describe_key_owner(request: Request, actor: Read, db: Db, settings: Config) -> Response:
    """Return the owner of this key, what it may do, and the service's properties."""
    return build_json_response(build_caller_response(db, settings, actor, request.app.version))
