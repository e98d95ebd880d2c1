"""`/ui/models/new`: create a model: its name, how batches differ, what it begins with, and its gate.

A link may fill in the first of these: that of a warning which advises a model on another one's version.
"""

from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Bell, BlobStore, CatalogueOf, Config, Db, Write
from api.pages import forms
from api.pages.render import page, root_of
from core import characters, imagenet_base, packaged_base
from core.errors import Invalid, PerennialError
from core.protocol.answers.model import ModelOut, Scenario
from core.protocol.answers.model_change import NewModel
from core.protocol.catalogue import Catalogue
from core.protocol.gate import GateLimits
from core.protocol.patch import ArchitectureIn
from core.requests import models, pretrained
from core.requests.admission import Admission

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/new"
SCENARIOS = {
    "class": "each batch brings new classes; one head tells all of them apart",
    "data": "the classes stay, and batches bring new samples of them",
    "task": "each batch is a task with a head of its own, which is named when images are predicted",
}
GATES = (
    ("max_forgetting", "Forgetting, at most (percent)", "such as 10"),
    ("min_new_task", "Accuracy on the new task, at least (percent)", "such as 80"),
    ("min_acc", "Mean accuracy over all tasks, at least (percent)", "such as 75"),
)
"""Limits of the gate: name, words, an example."""
Filled = Annotated[str, Query(max_length=63, description="What a link has filled in")]


@router.get(PATH)
def show(
    request: Request,
    actor: Write,
    catalogue: CatalogueOf,
    settings: Config,
    name: Filled = "",
    scenario: Filled = "",
    base: Filled = "",
    model: Filled = "",
    version: Filled = "",
) -> Response:
    """The form."""
    del actor
    asked = {"name": name, "scenario": scenario, "base": base, "model": model, "version": version}
    photos = pretrained.Terms.of(settings).photos
    given = {key: value for key, value in asked.items() if value}
    return _page(request, catalogue(), photos, given, {}, None)


@router.post(PATH)
async def create(
    request: Request,
    actor: Write,
    db: Db,
    blobs: BlobStore,
    catalogue: CatalogueOf,
    settings: Config,
    bell: Bell,
) -> Response:
    """Create it, and show it; or say beside each input what is wrong with it."""
    given = await forms.form(request)
    known = await to_thread.run_sync(catalogue)
    bounds, terms = Admission.of(settings), pretrained.Terms.of(settings)

    def created() -> ModelOut:
        wanted = _wanted(given)
        if given.get("base") == "version":
            source = models.read(db, known, actor, given.get("model", ""))
            size, channels = source["image"]["size"], source["image"]["channels"]
            wanted["architecture"] = cast(ArchitectureIn, dict(source["architecture"]))
            wanted["image"] = {"size": size, "channels": channels}
        return models.create(db, blobs, known, actor, wanted, None, bounds, terms)[0]

    try:
        answer = await to_thread.run_sync(created)
    except PerennialError as error:
        errors = {one["field"]: one["message"] for one in error.fields}
        return _page(request, known, terms.photos, given, errors, error.detail, error.status)
    if answer["job"] is not None:
        bell.ring(answer["job"])
    return RedirectResponse(f"{root_of(request.scope)}/ui/models/{answer['id']}", 303)


def _wanted(given: dict[str, str]) -> NewModel:
    """What the form asks for.

    Raises:
        Invalid: an input that only a form can have wrong.
    """
    scenario = given.get("scenario", "")
    if scenario not in SCENARIOS:
        raise _wrong("scenario", f"must be one of {', '.join(SCENARIOS)}")
    wanted: NewModel = {
        "name": given.get("name", ""),
        "scenario": cast(Scenario, scenario),
        "gate": _gate(given),
    }
    try:
        wanted["description"] = characters.prose(given.get("description", "").replace("\r\n", "\n")) or None
    except ValueError as error:
        raise _wrong("description", str(error)) from None
    return cast(NewModel, {**wanted, **_base(given)})


def _base(given: dict[str, str]) -> dict[str, object]:
    """What of the request says what the model begins with."""
    base = given.get("base", "packaged")
    if given.get("timm") and base != "timm":
        raise _wrong("base", "names no weights of timm, and a name of them is filled in: choose one of both")
    if given.get("model") and base != "version":
        raise _wrong("base", "names no other model, and one is filled in: choose one of both")
    if base == "timm":
        if not given.get("timm"):
            raise _wrong("architecture", "choose a name of the list")
        return {"architecture": f"timm/{given['timm'].removeprefix('timm/')}"}
    if base == "version":
        return {"base": {"model": given.get("model", ""), "version": forms.number_of(given, "version")}}
    if base == "random":
        return {"base": "random"}
    if base == "small":
        return {"base": packaged_base.PACKAGED}
    if base != "packaged":
        raise _wrong("base", "must be packaged, small, timm, version or random")
    return {}


def _gate(given: dict[str, str]) -> GateLimits:
    found = {}
    for name, _, _ in GATES:
        text = given.get(name, "").removesuffix("%").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 100:
            raise _wrong(f"gate.{name}", "must be a number from 0 to 100")
        found[name] = value / 100
    return cast(GateLimits, found)


def _wrong(field: str, message: str) -> Invalid:
    return Invalid(
        f"{field.rpartition('.')[2].replace('_', ' ')} {message}.",
        fields=[{"field": field, "message": message}],
    )


def _page(
    request: Request,
    known: Catalogue,
    photos: bool,
    given: dict[str, str],
    errors: dict[str, str],
    said: str | None,
    status: int = 200,
) -> Response:
    told = {
        "given": given,
        "errors": errors,
        "said": said,
        "scenarios": SCENARIOS,
        "gates": GATES,
        "photos": photos and not imagenet_base.find_problem(),
        "recommended": known["recommended"],
        "pretrained": sorted(known["pretrained"]),
    }
    return page(request, "new.html", told, status)
