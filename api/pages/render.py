"""Makes a page of a template: what every page is told, and the policy under which it runs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from api.pages import words
from api.static_files import address

FOLDER = Path(__file__).parent.parent / "templates"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # Of its own pages a browser then names the origin, also with a form: see `api.session`.
    "Referrer-Policy": "same-origin",
}
_UNITS = ("B", "kB", "MB", "GB", "TB")


def page(request: Request, template: str, told: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """A page.

    Args:
        template: a file in `api/templates`.
        told: what it shows, by the names that the template has for it.
    """
    return HTMLResponse(rendered(request.scope, template, told), status, HEADERS)


def rendered(scope: Scope, template: str, told: Mapping[str, object]) -> str:
    """The text of a page."""
    root = root_of(scope)
    path = scope["path"].removeprefix(root)
    actor = scope.get("state", {}).get("actor")
    may = actor is not None and actor.may("write")  # else nobody is shown a button that would refuse him
    here = {"root": root, "path": path, "actor": actor, "may": may, "auth": scope["app"].state.settings.auth}
    return _environment().get_template(template).render(**here, **told)


def root_of(scope: Scope) -> str:
    """The path that comes before all of the service's."""
    return str(scope.get("root_path", "")).rstrip("/")


def percent(share: float | None, digits: int = 1) -> str:
    """`96.1 %` of 0.961; a dash where nothing was measured."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def points(share: float | None) -> str:
    """`+1.2` of 0.012, in points of a percent; a minus that lines up; a dash where nothing was measured."""
    if share is None:
        return "–"
    value = round(100 * share, 1)
    return "0.0" if value == 0 else f"{'+' if value > 0 else '−'}{abs(value):.1f}"


def number(count: int) -> str:
    """`5,000` of 5000, as the API writes numbers in sentences."""
    return f"{count:,}"


def size(count: float) -> str:
    """`4.1 MB` of 4100000."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 99.5 else f"{count:.1f} {_UNITS[unit]}"


def moment(at: str) -> str:
    """`24 Nov 2026, 02:10` (UTC) of an RFC 3339 time."""
    return f"{datetime.fromisoformat(at).astimezone(UTC):%-d %b %Y, %H:%M}"


def ago(at: str) -> str:
    """`5 min ago`; of what is to come `in 5 min`."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    return f"in {span(-seconds)}" if seconds < -1 else f"{span(seconds)} ago"


def until(begin: str, end: str) -> str:
    """`5 min` from one time to another."""
    return span((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())


def span(seconds: float) -> str:
    """`40 s`, `5 min`, `3 h`, `12 days`."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        percent=percent,
        points=points,
        size=size,
        moment=moment,
        ago=ago,
        span=span,
        until=until,
        number=number,
        people=words.for_people,
        new_model=words.new_model,
        next_batch=words.next_batch,
        segment=lambda text: quote(str(text), safe=""),
    )
    made.globals["static"] = address
    return made
