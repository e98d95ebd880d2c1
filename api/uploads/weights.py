"""An uploaded base between HTTP and its check: the request, and what its file must contain."""

from collections.abc import Callable
from dataclasses import dataclass

from anyio import to_thread

from api.dependencies import ShapeWork
from api.uploads.body import ReceivedUpload
from core.admission.admission import AdmissionLimits
from core.bases import bases
from core.bases.expected_base import (
    find_cached_base_tensor_shapes,
    load_or_compute_base_tensor_shapes,
)
from core.contract.base import ExpectedBaseTensors
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ArchitectureChoice
from core.errors import BaseInvalid, Invalid
from core.ingest.class_list import parse_class_list
from core.recipe.base_images import BaseImageSettings
from core.recipe.images import ImageFormatAndNormalisation
from core.settings import Settings


@dataclass(frozen=True)
class BaseUploadOptions:
    """Properties of an uploaded base, from its request.

    Attributes:
        architecture: a name or JSON.
        image_size: pixels per side.
        channels: 1 or 3.
        config: preparation of its images.
        classes: list of the classes of its head; None for a base without one.
    """

    architecture: str
    image_size: int | None
    channels: int | None
    config: BaseImageSettings
    classes: str | None = None


def parse_base_class_names(
    upload_options: BaseUploadOptions, file: ReceivedUpload, settings: Settings
) -> list[str] | None:
    """Parse the class names in a request to upload a base; None if it names none.

    Raises:
        Invalid, LabelsInvalid: the list is in the query and in the form, or cannot be used.
    """
    field = file.fields.get("classes")
    if field is not None and upload_options.classes is not None:
        raise Invalid(
            "Send classes in the query or as a field of the form, not both.",
            fields=[{"field": "classes", "message": "sent twice"}],
        )
    text = upload_options.classes if field is None else field
    return None if text is None else parse_class_list(text, settings.max_classes)


@dataclass(frozen=True)
class UploadedBaseArchitectureAndFormat:
    """Architecture, its family and image format for which a base is uploaded."""

    architecture: ArchitectureChoice
    images: ImageFormatAndNormalisation
    family: str


def resolve_requested_base_network(
    upload_options: BaseUploadOptions,
    length: int | None,
    catalogue: Callable[[], RecipeCatalogue],
    settings: Settings,
) -> UploadedBaseArchitectureAndFormat:
    """Resolve the architecture and image format of an uploaded base, with defaults filled in.

    Raises:
        Invalid, JobTooLarge: there is no such architecture, or it is too large.
        BaseInvalid: the body is empty.
    """
    catalogue_value = catalogue()
    resolved, images = bases.parse_base_upload_architecture(
        catalogue_value,
        upload_options.architecture,
        upload_options.image_size,
        upload_options.channels,
        upload_options.config,
    )
    AdmissionLimits.from_settings(settings).check_network_size(
        catalogue_value, resolved, images.image
    )
    if length == 0:
        raise BaseInvalid("The body is empty; a base is a safetensors file.")
    return UploadedBaseArchitectureAndFormat(
        resolved, images, catalogue_value["architectures"][resolved["name"]]["family"]
    )


async def load_expected_base_tensor_shapes(
    want: UploadedBaseArchitectureAndFormat, settings: Settings, work: ShapeWork, owner_id: str
) -> ExpectedBaseTensors:
    """Return names and shapes of the tensors that an uploaded base must contain, cached by request."""
    image = want.images.image
    cached = await to_thread.run_sync(
        find_cached_base_tensor_shapes, settings, want.architecture, image
    )
    if cached is not None:
        return cached
    # Heavy work: shapes come from building the network, in turns between owners.
    return await work.run_work_in_turn(
        owner_id, lambda: load_or_compute_base_tensor_shapes(settings, want.architecture, image)
    )
