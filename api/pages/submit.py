"""`/ui/models/{model}/submit`: send a batch, know before what it will meet, and see the command that does the same.

With a script the page uploads each file as soon as it is dropped, in pieces that survive a cut (`/v1/uploads`); without
one it is a plain form with a file. Both go the way of the API's own route (`api.uploads.order`).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Annotated
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api import session
from api.dependencies import Bell, CatalogueOf, Config, Db, ObjectStore, Write
from api.pages import forms, recipe_form
from api.pages.recipe_form import RecipeForm
from api.pages.render import page, root_of
from api.schemas.common import ModelPath
from api.uploads.assembled import assembled
from api.uploads.body import Received
from api.uploads.body import received as receive
from api.uploads.head import Terms
from api.uploads.order import Asked, Order, options_in
from api.uploads.upload import Upload
from core import characters
from core.errors import Invalid, InvalidRecipe, PerennialError
from core.ingest.limits import Limits
from core.ingest.readers.registry import UPLOAD_TYPES
from core.ingest.rules.options import OPTIONS
from core.ingest.sniff import SNIFF_BYTES, sniff
from core.protocol.answers.model import ModelOut
from core.protocol.report import ConflictsPolicy, Report
from core.requests import models, whole_uploads

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/{model}/submit"
FIELDS = 300
"""That the form may have: those of the widest method, and of all else that a recipe says."""
FILES = 20
"""Named in the commands."""
Filled = Annotated[str, Query(max_length=2000, description="What a link has filled in")]
_PLAIN = ("name", "do", "conflicts", "again")


@router.get(PATH)
def show(
    request: Request,
    model: ModelPath,
    actor: Write,
    db: Db,
    catalogue: CatalogueOf,
    choice: Filled = "",
    recipe: Filled = "",
) -> Response:
    """The form. `choice`: the method or preset whose settings are shown; `recipe`: a patch that fills all in."""
    found = models.read(db, catalogue(), actor, model)
    given = {recipe_form.CHOICE: choice} if choice else {}
    unreadable = False
    try:
        given |= recipe_form.given_of(recipe) if recipe else {}
    except ValueError:
        unreadable = True
    form = recipe_form.recipe_form(db, catalogue(), actor, found, given)
    if unreadable:
        form.errors["recipe"] = "The link to this page names a recipe that is none: nothing is filled in."
    elif form.unknown:
        left_out = ", ".join(form.unknown[:10])
        form.errors["recipe"] = f"The link to this page names settings that do not exist: {left_out}."
    return _page(request, _Shown(found, form))


@router.post(f"{PATH}/plan")
async def plan(request: Request, model: ModelPath, actor: Write, db: Db, catalogue: CatalogueOf) -> Response:
    """What the service says of the form as it is filled in, and the commands that do the same."""
    given = await forms.form(request, FIELDS)
    found = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    form = await to_thread.run_sync(lambda: recipe_form.recipe_form(db, catalogue(), actor, found, given))
    return _page(request, _Shown(found, form))


@router.post(f"{PATH}/check")
async def check(
    request: Request,
    model: ModelPath,
    actor: Write,
    db: Db,
    store: ObjectStore,
    bell: Bell,
    catalogue: CatalogueOf,
    settings: Config,
) -> Response:
    """What a submit of an upload would meet, in words."""
    given = await forms.form(request, FIELDS)
    found = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    form = await to_thread.run_sync(lambda: recipe_form.recipe_form(db, catalogue(), actor, found, given))
    upload = Upload(request, actor, Terms(f"POST {PATH}"), db, settings, None)
    override = None if form.errors else form.patch or None
    asked = Asked(
        found["id"],
        validate="only",
        conflicts_policy=_conflicts(given),
        options=options_in(given),
        again=_is_again(given),
    )
    order = Order(asked, override, actor, upload, store, bell, catalogue)
    whole = await to_thread.run_sync(whole_uploads.whole, db, actor, given.get("upload", ""))
    with upload.place():
        async with assembled(db, store, actor, whole, sniff, settings) as file:
            sent = await order.submission(file, None, whole)
            report = await to_thread.run_sync(sent.preview)
    report["warnings"] = [
        text for text in report["warnings"] if text not in form.warnings
    ]  # said beside the recipe
    return _page(request, _Shown(found, form, report=report))


@router.post(PATH)
async def submit(
    request: Request,
    model: ModelPath,
    actor: Write,
    db: Db,
    store: ObjectStore,
    bell: Bell,
    catalogue: CatalogueOf,
    settings: Config,
) -> Response:
    """Check or submit the file of a plain form."""
    session.require_own_origin(request.scope)
    found = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    known = await to_thread.run_sync(catalogue)
    terms = Terms(f"POST {PATH}", fields=(*_PLAIN, *OPTIONS, *recipe_form.names(known)))
    upload = Upload(request, actor, terms, db, settings, None)
    order = Order(Asked(found["id"]), None, actor, upload, store, bell, catalogue)
    form = await to_thread.run_sync(lambda: recipe_form.recipe_form(db, known, actor, found, {}))
    try:
        head = upload.head(Limits.of(settings).body_bytes)
        if head.boundary is None:
            raise Invalid("A batch is sent by the form of this page, as multipart/form-data.")
        with upload.place():
            await to_thread.run_sync(order.precheck, head.length)
            async with receive(request, head, terms, settings) as file:
                given = {name: value.strip() for name, value in file.fields.items()}
                form = await to_thread.run_sync(
                    lambda: recipe_form.recipe_form(db, known, actor, found, given)
                )
                return await _sent(request, order, found, form, file)
    except PerennialError as error:
        if isinstance(error, InvalidRecipe):
            form.refused(error)
        shown = _Shown(found, form, wrong=error.detail, remedies=error.extra.get("remedies", []))
        return _page(request, shown, error.status)


async def _sent(
    request: Request, order: Order, model: ModelOut, form: RecipeForm, file: Received
) -> Response:
    """Check or submit a file that is here, with what its form says.

    Raises: as `Submission.submit`; and Invalid, InvalidRecipe for what somebody filled in.
    """
    if form.errors:
        raise InvalidRecipe("The recipe cannot be used: see the inputs that are marked.")
    only = form.given.get("do") == "check"
    kind = await to_thread.run_sync(_kind, file)
    name, options = _name(form.given.get("name", "")), options_in(form.given)
    asked = Asked(
        model["id"],
        name,
        "only" if only else None,
        conflicts_policy=_conflicts(form.given),
        options=options,
        again=_is_again(form.given),
    )
    order = replace(order, asked=asked, override=form.patch or None)
    sent = await order.submission(replace(file, kind=kind, fields={}), None)
    if only:
        return _page(request, _Shown(model, form, report=await to_thread.run_sync(sent.preview)))
    done = await to_thread.run_sync(sent.submit)
    if done.is_new:
        order.bell.ring(done.job)
    return RedirectResponse(f"{root_of(request.scope)}/ui/jobs/{done.job}", 303)


def _is_again(given: Mapping[str, str]) -> bool:
    """Whether a batch is to be learned that the model has."""
    return given.get("again") == "true"


def _kind(file: Received) -> str:
    """What the file is. Looked at only now: before, the fields behind it would not have come."""
    if not file.size:
        raise Invalid("No file was chosen: choose a zip, tar or npz of labelled images.")
    with file.path.open("rb") as opened:
        return sniff(opened.read(SNIFF_BYTES), None)


def _conflicts(given: Mapping[str, str]) -> ConflictsPolicy:
    return "keep" if given.get("conflicts") == "keep" else "reject"


def _name(text: str) -> str | None:
    try:
        if len(text) > characters.MAX_NAME_CHARS:
            raise ValueError(f"has {len(text)} characters; {characters.MAX_NAME_CHARS} are allowed")
        return characters.name(text) if text else None
    except ValueError as error:
        raise Invalid(f"The name of the batch {error}.") from None


@dataclass(frozen=True)
class _Shown:
    """Content of the page. `wrong`: why the batch was not taken; `report`: what a check found; `remedies`: options that
    let it be taken, {"option", "value", "does"}."""

    model: ModelOut
    form: RecipeForm
    wrong: str | None = None
    report: Report | None = None
    remedies: Sequence[Mapping[str, str]] = ()


def _page(request: Request, shown: _Shown, status: int = 200) -> Response:
    given = shown.form.given
    files = [one for one in given.get("file_names", "").split("\n") if one.strip()][:FILES]
    settings = request.app.state.settings
    told = {
        "model": shown.model,
        "form": shown.form,
        "wrong": shown.wrong,
        "report": shown.report,
        "remedies": shown.remedies,
        "most": settings.max_body_bytes,
        "types": ",".join((*UPLOAD_TYPES, ".zip", ".tar", ".tgz", ".gz", ".npz")),
        "commands": _commands(request, shown, files or ["BATCH.zip"], given.get("name", "")),
    }
    return page(request, "submit.html", told, status)


def _commands(request: Request, shown: _Shown, files: list[str], name: str) -> tuple[str, str]:
    """The same by the command line, and by curl."""
    model, patch = shown.model["name"], shown.form.json
    recipe = f" --recipe {shlex.quote(patch)}" if shown.form.patch else ""
    header = f" \\\n  -H {shlex.quote(f'Perennial-Recipe: {patch}')}" if shown.form.patch else ""
    base = f"{request.url.scheme}://{request.url.netloc}{root_of(request.scope)}"
    lines, curls = [], []
    for file in files:
        file = f"./{file}" if file.startswith("-") else file
        label = name if name and len(files) == 1 else ""
        named = f" --name {shlex.quote(label)}" if label else ""
        lines.append(f"perennial submit {model} {shlex.quote(file)}{named}{recipe}")
        query = f"?name={quote(label or _stem(file), safe='')}"
        curls.append(
            f"curl -H \"Authorization: Bearer $PERENNIAL_API_KEY\" -H 'Content-Type: application/octet-stream'{header}"
            f" \\\n  --data-binary {shlex.quote(f'@{file}')} {shlex.quote(f'{base}/v1/models/{model}/tasks{query}')}"
        )
    return "\n".join(lines), "\n".join(curls)


def _stem(file: str) -> str:
    name = PurePath(file).name
    for ending in (".tar.gz", ".tgz", ".zip", ".tar", ".npz"):
        name = name.removesuffix(ending)
    return name
