"""An uploaded batch between HTTP and the model: the request's settings, and the submission they
make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

from anyio import CapacityLimiter, to_thread

from api.strict_json import parse_strict_json
from api.uploads.body import ReceivedUpload
from api.uploads.upload import UploadReception
from core.admission.admission import AdmissionLimits
from core.contract.jobs.trial import Choose
from core.contract.patch import RecipePatch
from core.contract.reports.report import ConflictsPolicy, DuplicatesPolicy
from core.edits.listing import read_former_class_names
from core.errors import ArchiveHeldOutOnly, Invalid, InvalidRecipe
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.layout import BatchReadingSettings
from core.ingest.limits import ArchiveLimits
from core.jobs.worker_notification import WorkerNotifier
from core.recipe.catalogue import LazyRecipeCatalogue
from core.recipe.stored_patch import MAX_RECIPE_BYTES
from core.requests import idempotency
from core.requests.actor import Actor
from core.storage import ObjectStorage
from core.tasks import batch_report, held_out_batch, submission
from core.tasks.submission import BatchSubmission
from core.tasks.submitted_batch import SpooledBatch
from core.trials.plan import AUTO, TrialsRequest
from core.uploads.complete_uploads import CompleteUpload
from perennial.reading_rules.entries import BatchReadingOptions
from perennial.reading_rules.options import parse_reading_option_texts

_inspections = CapacityLimiter(2)
"""Limits archives inspected at once in one process: each takes up to 300 bytes per entry and a
core.
"""


@dataclass(frozen=True)
class BatchRequestOptions:
    """Query parameters of a request that submits or checks a batch.

    Attributes:
        recipe: override in the header, as JSON.
        options: options for reading the files.
        again: learn the batch even if the model already has it.
        trials: recipes to compare for the batch, as JSON or `auto`; None: it has one.
        choose: decision between them; None: the best.
        max_seconds: seconds of the job after which no further one begins; None: no limit.
    """

    model: str
    name: str | None = None
    validate: Literal["only", "full"] | None = None
    duplicates_policy: DuplicatesPolicy = "keep"
    conflicts_policy: ConflictsPolicy = "reject"
    recipe: str | None = None
    options: BatchReadingOptions = field(default_factory=BatchReadingOptions)
    again: bool = False
    trials: str | None = None
    choose: Choose | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class BatchSubmissionRequest:
    """A request to submit or check a batch: its model, recipe, trials and upload.

    Attributes:
        override: recipe of the batch; None: the model's.
        trials: recipes to compare for it; None: it has one.
        is_here: True if it was uploaded in pieces before.
        former_names: former class names of the model; `check_batch_room_and_read_former_names` reads them.
    """

    request: BatchRequestOptions
    override: RecipePatch | None
    actor: Actor
    upload: UploadReception
    store: ObjectStorage
    bell: WorkerNotifier
    catalogue: LazyRecipeCatalogue
    trials: TrialsRequest | None = None
    is_here: bool = False
    former_names: dict[str, str | None] = field(default_factory=dict)

    def check_batch_room_and_read_former_names(self, length: int | None) -> None:
        """Refuse a batch by its declared length if the model may not receive it."""
        settings = self.upload.settings
        # A mere validation stores nothing, and the bytes of a finished upload are already counted.
        takes_room = self.request.validate != "only" and not self.is_here
        room = settings.max_owner_bytes if takes_room else 0
        jobs = settings.max_open_jobs
        about = self.upload.db, self.actor, self.request.model
        has_former_names = submission.require_batch_room_and_detect_former_names(
            *about,
            max_open_jobs=jobs,
            max_bytes=room,
            length=length,
        )
        # Few models have any, so that usually no statement is sent.
        if has_former_names:
            self.former_names.update(read_former_class_names(*about))

    async def build_submission(
        self,
        file: ReceivedUpload,
        repeat: idempotency.IdempotentRequestIdentity | None,
        complete_upload: CompleteUpload | None = None,
    ) -> BatchSubmission:
        """Inspect a received batch file and build its submission to the model.

        Args:
            complete_upload: the upload in pieces that the file comes from.

        Raises:
            InvalidRecipe: the recipe is sent twice, or is invalid.
            ArchiveInvalid, ArchiveHostile, ArchiveTooLarge, LabelsInvalid: see
                `core.ingest.inspect.summarise_archive_and_digest_content`.
        """
        request, settings = self.request, self.upload.settings
        override = self._choose_recipe_from_header_or_form(file)
        limits = ArchiveLimits.from_settings(settings)
        # Read only if the archive needs it, and at most once.
        about = self.upload.db, self.actor, request.model
        former_names = self.former_names
        read_known_classes = cache(
            lambda: batch_report.read_known_classes(*about) | former_names.keys()
        )
        reading = BatchReadingSettings(
            request.options, read_known_classes, former_names=lambda: former_names
        )
        archive = file.path, file.kind, limits
        inspect_file = partial(
            summarise_archive_and_digest_content, *archive, reading, request.duplicates_policy
        )
        try:
            inspection = await to_thread.run_sync(inspect_file, limiter=_inspections)
        # Few batches are of this kind, so only now is the model looked up.
        except ArchiveHeldOutOnly:
            model_query = self.upload.db, self.actor, request.model
            if not await to_thread.run_sync(
                held_out_batch.may_batch_have_held_out_images_alone, *model_query
            ):
                raise
            alone = replace(reading, options=replace(request.options, held_out_alone=True))
            inspect_file = partial(
                summarise_archive_and_digest_content, *archive, alone, request.duplicates_policy
            )
            inspection = await to_thread.run_sync(inspect_file, limiter=_inspections)
        batch = SpooledBatch(
            file.path,
            file.sha256,
            file.size,
            inspection,
            request.name,
            override,
            request.duplicates_policy,
            request.conflicts_policy,
            request.again,
            self.trials,
        )
        # In a thread: the first use of the catalogue may take seconds.
        catalogue = await to_thread.run_sync(self.catalogue)
        bounds = (
            settings.max_owner_bytes,
            settings.max_open_jobs,
            AdmissionLimits.from_settings(settings),
        )
        return BatchSubmission(
            self.upload.db,
            self.store,
            catalogue,
            self.actor,
            request.model,
            batch,
            repeat,
            *bounds,
            complete_upload,
        )

    def _choose_recipe_from_header_or_form(self, file: ReceivedUpload) -> RecipePatch | None:
        field = file.fields.get("recipe")
        if field is None:
            return self.override
        if self.override is not None:
            raise InvalidRecipe(
                "Send the recipe in the header Perennial-Recipe or in the field recipe, not both."
            )
        return parse_recipe_override(field.encode())


def parse_batch_reading_options(texts: Mapping[str, str]) -> BatchReadingOptions:
    """Parse the options for reading a batch from query or form texts. Raises Invalid."""
    try:
        return parse_reading_option_texts(texts)
    except ValueError as error:
        raise Invalid(str(error)) from None


def parse_trials_query(batch_request: BatchRequestOptions) -> TrialsRequest | None:
    """Parse the recipes to compare (trials) from a batch request's query. Raises Invalid."""
    text = batch_request.trials
    recipes = None if text is None else parse_trial_recipes(text)
    return build_requested_trials(recipes, batch_request.choose, batch_request.max_seconds)


def parse_trial_recipes(text: str) -> Literal["auto"] | list[RecipePatch]:
    """Parse the recipes to compare: `auto`, or a JSON list of recipe overrides. Raises Invalid."""
    if text == AUTO:
        return AUTO
    if len(text) > MAX_RECIPE_BYTES:
        raise Invalid(f"Trials may have {MAX_RECIPE_BYTES} bytes.")
    value = parse_strict_json(text.encode(), "The list of trials")
    if not isinstance(value, list) or not all(isinstance(patch, dict) for patch in value):
        raise Invalid('trials is "auto", or a JSON list of recipes such as [{"epochs": 5}, {}].')
    return value


def build_requested_trials(
    recipes: Literal["auto"] | list[RecipePatch] | None,
    choose: Choose | None,
    max_seconds: float | None,
) -> TrialsRequest | None:
    """Build the request for trials from its fields; None for a batch with one recipe.

    Raises:
        Invalid: a field about trials without trials.
    """
    if recipes is not None:
        return TrialsRequest(recipes, choose or "best", max_seconds)
    if choose is not None:
        raise Invalid("choose decides between trials: send trials as well.")
    if max_seconds is not None:
        raise Invalid("max_seconds limits trials: send trials as well.")
    return None


def parse_recipe_override(text: bytes) -> RecipePatch:
    """Parse a recipe override from JSON text. Raises InvalidRecipe."""
    if len(text) > MAX_RECIPE_BYTES:
        raise InvalidRecipe(f"A recipe may have {MAX_RECIPE_BYTES} bytes.")
    value = parse_strict_json(text, "The recipe")
    if not isinstance(value, dict):
        raise InvalidRecipe('A recipe override is a JSON object such as {"epochs": 5}.')
    return value
