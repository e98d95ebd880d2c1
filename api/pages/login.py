"""Login with a key, and logout."""

from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.authentication import session
from api.authentication.access import Authenticator
from api.dependencies import Db
from api.pages.errors import LOGIN, get_safe_page_path
from api.pages.parts.forms import read_values_of_own_page_form
from api.pages.parts.render import get_root_path, render_page
from core.errors import InsufficientKeyScope, NotAuthenticated
from core.keys import sessions

router = APIRouter(include_in_schema=False)
NOT_DONE = (
    "Your session has ended, or its key was revoked. What you sent was not done: log in, and send "
    "it again from the page that you were on."
)


@router.get(LOGIN)
async def show_login_form(
    request: Request,
    next: Annotated[str, Query(max_length=2000, description="Where to go then")] = "",
    sent: Annotated[
        Literal["yes"] | None, Query(description="Something was sent, and was not done")
    ] = None,
) -> Response:
    """Show the login form, or go on to the page while authentication is off."""
    if request.app.state.settings.auth == "off":
        return RedirectResponse(get_safe_page_path(request.scope, next), 303)
    return render_page(
        request,
        "login.html",
        {"next": get_safe_page_path(request.scope, next), "wrong": NOT_DONE if sent else None},
    )


@router.post(LOGIN)
async def handle_login_form(request: Request, db: Db) -> Response:
    """Start a session and go on to the requested page."""
    inputs = await read_values_of_own_page_form(request)
    # Anyone can write a link to this page: `get_safe_page_path` keeps it from leading elsewhere.
    next_path = get_safe_page_path(request.scope, inputs.get("next", ""))
    response = RedirectResponse(next_path, 303)
    try:
        # Older browsers do not send it; `read_values_of_own_page_form` has checked Origin, which they do send.
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise InsufficientKeyScope("Only the login page itself logs in.")
        host_and_port = session.read_host_and_port(request.scope)
        session.require_secure_origin_and_set_cookie(
            request,
            response,
            await to_thread.run_sync(
                sessions.begin_browser_session, db, inputs.get("key", ""), host_and_port
            ),
        )
    except (NotAuthenticated, InsufficientKeyScope) as error:
        return render_page(
            request, "login.html", {"next": next_path, "wrong": error.detail}, error.status
        )
    return response


@router.post("/ui/logout")
async def handle_logout_form(request: Request, db: Db) -> Response:
    """End the session."""
    await read_values_of_own_page_form(request)
    token = session.find_session_token_and_check_own_page(request.scope)
    if token is not None:
        await to_thread.run_sync(sessions.end_browser_session, db, token)
        access: Authenticator = request.app.state.access
        access.forget_cached_session(token)
    response = RedirectResponse(f"{get_root_path(request.scope)}{LOGIN}", 303)
    session.delete_session_cookie(request, response)
    return response
