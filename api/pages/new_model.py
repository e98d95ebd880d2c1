"""`/ui/models/new`: create a model with its name, scenario, base and gate.

A link may fill in these inputs, as in a warning that recommends a new model based on another
model's version.
"""

from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Bell, BlobStore, CatalogueOf, Config, Db, Write
from api.pages import forms
from api.pages.render import render_page, root_of
from core import characters, imagenet_base, packaged_base
from core.errors import Invalid, PerennialError
from core.protocol.answers.model import ModelOut, Scenario
from core.protocol.answers.model_change import NewModel
from core.protocol.catalogue import Catalogue
from core.protocol.gate import GateLimits
from core.protocol.patch import ArchitectureIn
from core.requests import models, pretrained
from core.requests.admission import Admission
from core.requests.new_model import Limits
from core.requests.service import Service

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
"""Limits of the gate: name, label, example."""
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
    """Show the form."""
    del actor
    link_values = {
        "name": name,
        "scenario": scenario,
        "base": base,
        "model": model,
        "version": version,
    }
    photos = pretrained.Terms.from_settings(settings).photos
    inputs = {key: value for key, value in link_values.items() if value}
    return _render_form(request, catalogue(), photos, inputs, {}, None)


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
    """Create a model and show it, or show the form again with an error beside each invalid
    input.
    """
    inputs = await forms.read_form(request)
    catalogue_value = await to_thread.run_sync(catalogue)
    bounds, terms = Admission.from_settings(settings), pretrained.Terms.from_settings(settings)

    def create_from_form() -> ModelOut:
        new_model = _parse_model(inputs)
        if inputs.get("base") == "version":
            source = models.read(db, catalogue_value, actor, inputs.get("model", ""))
            size, channels = source["image"]["size"], source["image"]["channels"]
            new_model["architecture"] = cast(ArchitectureIn, dict(source["architecture"]))
            new_model["image"] = {"size": size, "channels": channels}
        service = Service(db, blobs, catalogue_value)
        return models.create(service, actor, new_model, None, Limits(bounds, terms))[0]

    try:
        model_response = await to_thread.run_sync(create_from_form)
    except PerennialError as error:
        errors = {one["field"]: one["message"] for one in error.fields}
        return _render_form(
            request, catalogue_value, terms.photos, inputs, errors, error.detail, error.status
        )
    if model_response["job"] is not None:
        bell.ring(model_response["job"])
    return RedirectResponse(f"{root_of(request.scope)}/ui/models/{model_response['id']}", 303)


def _parse_model(given: dict[str, str]) -> NewModel:
    """Return the request that the form describes.

    Raises:
        Invalid: an input is invalid in a way that only a form can be.
    """
    scenario = given.get("scenario", "")
    if scenario not in SCENARIOS:
        raise _build_error("scenario", f"must be one of {', '.join(SCENARIOS)}")
    new_model: NewModel = {
        "name": given.get("name", ""),
        "scenario": cast(Scenario, scenario),
        "gate": _parse_gate(given),
    }
    try:
        new_model["description"] = (
            characters.clean_prose(given.get("description", "").replace("\r\n", "\n")) or None
        )
    except ValueError as error:
        raise _build_error("description", str(error)) from None
    return cast(NewModel, {**new_model, **_parse_base(given)})


def _parse_base(given: dict[str, str]) -> dict[str, object]:
    """Return the part of the request that chooses the model's starting weights.

    Raises:
        Invalid: the choice is unknown, or contradicts another input.
    """
    base = given.get("base", "packaged")
    if given.get("timm") and base != "timm":
        raise _build_error(
            "base", "names no weights of timm, and a name of them is filled in: choose one of both"
        )
    if given.get("model") and base != "version":
        raise _build_error("base", "names no other model, and one is filled in: choose one of both")
    if base == "timm":
        if not given.get("timm"):
            raise _build_error("architecture", "choose a name of the list")
        return {"architecture": f"timm/{given['timm'].removeprefix('timm/')}"}
    if base == "version":
        return {
            "base": {"model": given.get("model", ""), "version": forms.number_of(given, "version")}
        }
    if base == "random":
        return {"base": "random"}
    if base == "small":
        return {"base": packaged_base.PACKAGED}
    if base != "packaged":
        raise _build_error("base", "must be packaged, small, timm, version or random")
    return {}


def _parse_gate(given: dict[str, str]) -> GateLimits:
    limits = {}
    for name, _, _ in GATES:
        text = given.get(name, "").removesuffix("%").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 100:
            raise _build_error(f"gate.{name}", "must be a number from 0 to 100")
        limits[name] = value / 100
    return cast(GateLimits, limits)


def _build_error(field: str, message: str) -> Invalid:
    return Invalid(
        f"{field.rpartition('.')[2].replace('_', ' ')} {message}.",
        fields=[{"field": field, "message": message}],
    )


def _render_form(
    request: Request,
    known: Catalogue,
    photos: bool,
    given: dict[str, str],
    errors: dict[str, str],
    said: str | None,
    status: int = 200,
) -> Response:
    context = {
        "given": given,
        "errors": errors,
        "said": said,
        "scenarios": SCENARIOS,
        "gates": GATES,
        "photos": photos and not imagenet_base.find_problem(),
        "recommended": known["recommended"],
        "pretrained": sorted(known["pretrained"]),
    }
    return render_page(request, "new.html", context, status)
