"""Rendering of pages from templates, with their common values and security policy."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from api.pages.parts import wording
from api.static_files import build_static_file_url_path

FOLDER = Path(__file__).parents[2] / "templates"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # With this policy a browser sends the origin with the service's own forms: see `api.authentication.session`.
    "Referrer-Policy": "same-origin",
}
_UNITS = ("B", "kB", "MB", "GB", "TB")


def render_page(
    request: Request, template: str, values: Mapping[str, object], status: int = 200
) -> HTMLResponse:
    """Render a page template as an HTTP response.

    Args:
        template: a file in `api/templates`.
        values: values of the template's variables.
    """
    return HTMLResponse(render_template_as_html(request.scope, template, values), status, HEADERS)


def render_template_as_html(scope: Scope, template: str, values: Mapping[str, object]) -> str:
    """Render a page template as HTML text."""
    root = get_root_path(scope)
    path = scope["path"].removeprefix(root)
    actor = scope.get("state", {}).get("actor")
    # Hide buttons that the caller's key could not use.
    may_write = actor is not None and actor.has_scope("write")
    common = {
        "root": root,
        "path": path,
        "actor": actor,
        "may": may_write,
        "auth": scope["app"].state.settings.auth,
    }
    return _build_template_environment().get_template(template).render(**common, **values)


def get_root_path(scope: Scope) -> str:
    """Return the path prefix under which the service is mounted, such as behind a proxy."""
    return str(scope.get("root_path", "")).rstrip("/")


def format_percent(share: float | None, digits: int = 1) -> str:
    """Format 0.961 as `96.1 %`; a dash if not measured."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def format_percentage_points(share: float | None) -> str:
    """Format 0.012 as `+1.2` percentage points, with a typographic minus; a dash if not
    measured.
    """
    if share is None:
        return "–"
    value = round(100 * share, 1)
    return "0.0" if value == 0 else f"{'+' if value > 0 else '−'}{abs(value):.1f}"


def format_with_thousands_separators(count: int) -> str:
    """Format 5000 as `5,000`, like numbers in the API's sentences."""
    return f"{count:,}"


def format_byte_size(count: float) -> str:
    """Format 4100000 bytes as `4.1 MB`."""
    unit = 0
    # 999.6 would be rounded to 1000 of the smaller unit.
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return (
        f"{count:.0f} {_UNITS[unit]}"
        if unit == 0 or count >= 99.5
        else f"{count:.1f} {_UNITS[unit]}"
    )


def format_date_and_time(at: str) -> str:
    """Format an RFC 3339 time as `24 Nov 2026, 02:10` (UTC)."""
    return f"{datetime.fromisoformat(at).astimezone(UTC):%-d %b %Y, %H:%M}"


def format_age(at: str) -> str:
    """Format a time as `5 min ago`, or a future one as `in 5 min`."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    return f"in {format_duration(-seconds)}" if seconds < -1 else f"{format_duration(seconds)} ago"


def format_duration_between(begin: str, end: str) -> str:
    """Format the span between two times as `5 min`."""
    return format_duration(
        (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    )


def format_duration(seconds: float) -> str:
    """Format seconds as `40 s`, `5 min`, `3 h` or `12 days`."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


@cache
def _build_template_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        # A name that a template misspells is an error, instead of rendering as nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Templates change with a release only: their files need no check for each page.
        auto_reload=False,
    )
    environment.filters.update(
        percent=format_percent,
        points=format_percentage_points,
        size=format_byte_size,
        moment=format_date_and_time,
        ago=format_age,
        span=format_duration,
        until=format_duration_between,
        number=format_with_thousands_separators,
        people=wording.replace_requests_by_button_labels,
        new_model=wording.find_advised_new_model_form_path,
        next_batch=wording.find_advised_batch_form_query,
        segment=lambda text: quote(str(text), safe=""),
    )
    environment.globals["static"] = build_static_file_url_path
    return environment
