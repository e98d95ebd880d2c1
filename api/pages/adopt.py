"""`/ui/models/adopt`: bring a classifier from elsewhere as version 1 of a new model."""

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.authentication import session
from api.dependencies import Service, ServiceDependencies, ShapeWork, Write
from api.pages.parts.render import get_root_path, render_page
from api.routes.bases import MAX_BYTES
from api.uploads.body import ReceivedUpload, receive_body_into_spool
from api.uploads.request_checks import UploadRouteRules
from api.uploads.upload import UploadReception
from api.uploads.weights import (
    BaseUploadOptions,
    load_expected_base_tensor_shapes,
    parse_base_class_names,
    resolve_requested_base_network,
)
from core.admission.admission import AdmissionLimits
from core.bases import bases, pretrained
from core.contract.responses.model_change import NewModel
from core.errors import Invalid, PerennialError
from core.models import models
from core.models.new_model import NewModelAdmissionLimits
from core.recipe.base_images import parse_base_image_config
from core.requests.actor import Actor
from core.usage import quota

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/adopt"
FIELDS = ("name", "architecture", "classes", "image_size", "prepared", "config")
TERMS = UploadRouteRules(f"POST {PATH}", fields=FIELDS)


@router.get(PATH)
def show_adoption_form(request: Request, actor: Write) -> Response:
    """Show the form that uploads a classifier trained elsewhere, to create a model from it."""
    del actor
    return _render_adoption_form(request, {})


@router.post(PATH)
async def handle_adopt_classifier_form(
    request: Request, actor: Write, service: Service, work: ShapeWork
) -> Response:
    """Create a model from a classifier that a form sends, and show it, or show the form again with
    the error.
    """
    session.require_own_request_origin(request.scope)
    settings, inputs = service.settings, dict[str, str]()
    upload = UploadReception(request, actor, TERMS, service.db, settings, None)
    try:
        head = upload.check_request_head(min(MAX_BYTES, settings.max_body_bytes))
        if head.boundary is None:
            raise Invalid("A classifier is sent by the form of this page, as multipart/form-data.")
        with upload.hold_upload_slot():
            owner, limit = actor.owner_id, settings.max_owner_bytes
            await to_thread.run_sync(
                quota.require_storage_room, service.db, owner, limit, head.length
            )
            async with receive_body_into_spool(request, head, TERMS, settings) as file:
                inputs = {name: value.strip() for name, value in file.fields.items()}
                model = await _store_and_adopt_classifier(service, work, actor, file, inputs)
    except PerennialError as error:
        return _render_adoption_form(request, inputs, error)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}", 303)


async def _store_and_adopt_classifier(
    service: ServiceDependencies,
    work: ShapeWork,
    actor: Actor,
    file: ReceivedUpload,
    inputs: dict[str, str],
) -> str:
    """Store the file as a base and create the model that adopts it; return the model's id.

    Raises:
        PerennialError: an input or the file cannot be used; nothing stays.
    """
    settings, resources = (
        service.settings,
        await to_thread.run_sync(service.load_use_case_resources),
    )
    upload_options = _parse_uploaded_base_form(inputs)
    requested_network = await to_thread.run_sync(
        resolve_requested_base_network, upload_options, file.size, service.catalogue, settings
    )
    expected = await load_expected_base_tensor_shapes(
        requested_network, settings, work, actor.owner_id
    )
    classes = parse_base_class_names(upload_options, file, settings)
    network = bases.ExpectedBaseNetwork(
        **vars(requested_network), expected=expected, classes=classes
    )
    limits = NewModelAdmissionLimits(
        AdmissionLimits.from_settings(settings),
        pretrained.PretrainedWeightsPolicy.from_settings(settings),
    )

    def create_base_and_adopting_model() -> str:
        base = bases.create_base_from_upload(resources, settings, actor, network, file.path)["id"]
        asked_model: NewModel = {"name": inputs["name"], "scenario": "class", "base": base}
        try:
            return models.create_model(resources, actor, asked_model, None, limits)[0]["id"]
        except PerennialError:
            # The form stored the base for this model alone: nobody would look for it later.
            bases.delete_base(service.db, service.blobs, actor, base)
            raise

    return await to_thread.run_sync(create_base_and_adopting_model)


def _parse_uploaded_base_form(inputs: dict[str, str]) -> BaseUploadOptions:
    """Parse the form that uploads a trained classifier into the options of a base.

    Raises:
        Invalid: an input is missing, or invalid in a way that only a form can be.
    """
    for name in ("name", "architecture", "classes"):
        if not inputs.get(name):
            raise Invalid(f"{name} is empty.", fields=[{"field": name, "message": "is empty"}])
    size = inputs.get("image_size", "")
    # The length first: int() of many digits takes long, and zeros may stand before a large number.
    if size and not (
        size.isascii() and size.isdigit() and len(size) <= 4 and 8 <= int(size) <= 1024
    ):
        message = "must be 8 to 1024 pixels"
        raise Invalid(
            f"The side of the images {message}.",
            fields=[{"field": "image_size", "message": message}],
        )
    config = inputs.get("config") or None
    is_imagenet = inputs.get("prepared") == "imagenet"
    images = parse_base_image_config(config, "imagenet" if is_imagenet else None)
    return BaseUploadOptions(inputs["architecture"], int(size) if size else None, None, images)


def _render_adoption_form(
    request: Request, inputs: dict[str, str], error: PerennialError | None = None
) -> Response:
    context = {
        "given": inputs,
        "errors": {one["field"]: one["message"] for one in error.fields} if error else {},
        "said": error.detail if error else None,
    }
    return render_page(request, "adopt.html", context, error.status if error else 200)
