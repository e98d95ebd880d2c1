"""`/ui/models/{model}/submit`: send a batch, check it first, and show the equivalent command.

With JavaScript the page uploads each file as soon as it is dropped, in pieces that can be resumed
(`/v1/uploads`). Without, it is a plain form with a file. Both use the code of the API's own route
(`api.uploads.batch_request`).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Annotated
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from api.authentication import session
from api.dependencies import CatalogueOf, Db, Service, Write
from api.pages.parts import forms, recipe_form, trials_form
from api.pages.parts.recipe_form import RecipeForm
from api.pages.parts.render import get_root_path, render_page
from api.pages.parts.trials_form import NO_TRIALS, TrialsForm, parse_trials_and_add_form_errors
from api.schemas.common import ModelPath
from api.uploads.assembled_upload import join_upload_pieces_in_spool
from api.uploads.batch_request import (
    BatchRequestOptions,
    BatchSubmissionRequest,
    parse_batch_reading_options,
)
from api.uploads.body import ReceivedUpload
from api.uploads.body import receive_body_into_spool as receive
from api.uploads.request_checks import UploadRouteRules
from api.uploads.upload import UploadReception
from core.contract.reports.report import ConflictsPolicy, Report
from core.contract.responses.model import ModelOut
from core.errors import Invalid, InvalidRecipe, PerennialError
from core.ingest.limits import ArchiveLimits
from core.ingest.readers.registry import FORMATS
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from core.models import models
from core.tasks.held_out_batch import submit_batch_or_measure_adopted_classifier
from core.uploads import complete_uploads
from perennial.characters import MAX_NAME_CHARS, validate_and_normalise_name
from perennial.reading_rules.options import OPTIONS

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/{model}/submit"
FIELDS = 300
"""Maximum number of form fields: enough for the largest method and the rest of a recipe."""
FILES = 20
"""Maximum number of files named in the commands."""
Filled = Annotated[str, Query(max_length=2000, description="What a link has filled in")]
Again = Annotated[bool, Query(description="Learn a batch once more that the model has")]
_PLAIN = ("name", "do", "conflicts", "again", *trials_form.INPUTS)


@dataclass(frozen=True)
class SubmitFormPrefill:
    """Values with which a link fills in the form that submits a batch.

    Attributes:
        choice: the method or preset whose settings are shown.
        recipe: a patch in JSON that fills in the inputs.
        again: True ticks the box that learns a batch once more.
    """

    choice: Filled = ""
    recipe: Filled = ""
    again: Again = False


@router.get(PATH)
def show_submit_form(
    request: Request,
    model: ModelPath,
    actor: Write,
    service: Service,
    prefill: Annotated[SubmitFormPrefill, Depends()],
) -> Response:
    """Show the form that sends a batch."""
    db, catalogue = service.db, service.catalogue()
    model_response = models.read_model(db, catalogue, actor, model)
    inputs = {recipe_form.CHOICE: prefill.choice} if prefill.choice else {}
    is_unreadable = False
    try:
        inputs |= (
            recipe_form.convert_recipe_patch_to_form_values(prefill.recipe)
            if prefill.recipe
            else {}
        )
    except ValueError:
        is_unreadable = True
    form = recipe_form.build_recipe_form(db, catalogue, actor, model_response, inputs)
    if is_unreadable:
        form.errors["recipe"] = (
            "The link to this page names a recipe that is none: nothing is filled in."
        )
    elif form.unknown_input_names:
        left_out = ", ".join(form.unknown_input_names[:10])
        form.errors["recipe"] = (
            f"The link to this page names settings that do not exist: {left_out}."
        )
    if prefill.again:
        form.inputs["again"] = "true"
    return _render_submit_form(request, _SubmitPageContent(model_response, form))


@router.post(f"{PATH}/plan")
async def handle_recipe_preview_form(
    request: Request, model: ModelPath, actor: Write, db: Db, catalogue: CatalogueOf
) -> Response:
    """Show the service's warnings about the recipe form's values, and the equivalent commands."""
    inputs = await forms.read_values_of_own_page_form(request, FIELDS)
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, catalogue(), actor, model)
    )
    form = await to_thread.run_sync(
        lambda: recipe_form.build_recipe_form(db, catalogue(), actor, model_response, inputs)
    )
    trials = parse_trials_and_add_form_errors(form, inputs)
    return _render_submit_form(request, _SubmitPageContent(model_response, form, trials=trials))


@router.post(f"{PATH}/check")
async def handle_check_upload_request(
    request: Request, model: ModelPath, actor: Write, service: Service
) -> Response:
    """Show the result of checking an upload without submitting it."""
    db, store, settings = service.db, service.store, service.settings
    inputs = await forms.read_values_of_own_page_form(request, FIELDS)
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, model)
    )
    form = await to_thread.run_sync(
        lambda: recipe_form.build_recipe_form(
            db, service.catalogue(), actor, model_response, inputs
        )
    )
    # Nothing is received here: the order needs the settings and a place among the owner's uploads.
    upload = UploadReception(request, actor, UploadRouteRules(f"POST {PATH}"), db, settings, None)
    trials = parse_trials_and_add_form_errors(form, inputs)
    override = None if form.errors else form.patch or None
    batch_request = BatchRequestOptions(
        model_response["id"],
        validate="only",
        conflicts_policy=_parse_conflicts_policy(inputs),
        options=parse_batch_reading_options(inputs),
        again=_is_relearning_requested(inputs),
    )
    order = BatchSubmissionRequest(
        *(batch_request, override, actor, upload, store),
        *(service.bell, service.catalogue, trials.asked),
    )
    complete_upload = await to_thread.run_sync(
        complete_uploads.require_complete_upload, db, actor, inputs.get("upload", "")
    )
    with upload.hold_upload_slot():
        async with join_upload_pieces_in_spool(
            db, store, actor, complete_upload, detect_upload_format, settings
        ) as file:
            submission = await order.build_submission(file, None, complete_upload)
            report = await to_thread.run_sync(submission.preview_submission)
    # The page shows the form's own warnings beside the recipe.
    report["warnings"] = [text for text in report["warnings"] if text not in form.warnings]
    return _render_submit_form(
        request, _SubmitPageContent(model_response, form, report=report, trials=trials)
    )


@router.post(PATH)
async def handle_plain_submit_form(
    request: Request, model: ModelPath, actor: Write, service: Service
) -> Response:
    """Check or submit a batch that was sent by the form without JavaScript."""
    db, catalogue, settings = service.db, service.catalogue, service.settings
    session.require_own_request_origin(request.scope)
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, catalogue(), actor, model)
    )
    catalogue_value = await to_thread.run_sync(catalogue)
    # Inputs of all methods: the choice is in the form itself, which has not been read yet.
    terms = UploadRouteRules(
        f"POST {PATH}",
        fields=(*_PLAIN, *OPTIONS, *recipe_form.list_recipe_form_input_names(catalogue_value)),
    )
    # Browsers send no idempotency key with a form.
    upload = UploadReception(request, actor, terms, db, settings, None)
    order = BatchSubmissionRequest(
        BatchRequestOptions(model_response["id"]),
        None,
        actor,
        upload,
        service.store,
        service.bell,
        catalogue,
    )
    form = await to_thread.run_sync(
        # Shown if the upload is refused before its fields have arrived.
        lambda: recipe_form.build_recipe_form(db, catalogue_value, actor, model_response, {})
    )
    try:
        head = upload.check_request_head(ArchiveLimits.from_settings(settings).body_bytes)
        if head.boundary is None:
            raise Invalid("A batch is sent by the form of this page, as multipart/form-data.")
        with upload.hold_upload_slot():
            await to_thread.run_sync(order.check_batch_room_and_read_former_names, head.length)
            async with receive(request, head, terms, settings) as file:
                inputs = {name: value.strip() for name, value in file.fields.items()}
                form = await to_thread.run_sync(
                    lambda: recipe_form.build_recipe_form(
                        db, catalogue_value, actor, model_response, inputs
                    )
                )
                return await _check_or_submit_batch_file(request, order, model_response, form, file)
    except PerennialError as error:
        if isinstance(error, InvalidRecipe):
            form.add_service_errors(error)
        content = _SubmitPageContent(
            model_response, form, wrong=error.detail, remedies=error.extra.get("remedies", [])
        )
        return _render_submit_form(request, content, error.status)


async def _check_or_submit_batch_file(
    request: Request,
    order: BatchSubmissionRequest,
    model: ModelOut,
    form: RecipeForm,
    file: ReceivedUpload,
) -> Response:
    """Check or submit a received batch file with the recipe and options of its form.

    Raises:
        InvalidRecipe: the form's recipe has errors.
        Invalid: another value of the form is invalid.
        PerennialError: see `BatchSubmission.submit_as_next_task`.
    """
    trials = parse_trials_and_add_form_errors(form, form.inputs)
    if form.errors:
        raise InvalidRecipe("The recipe cannot be used: see the inputs that are marked.")
    is_check = form.inputs.get("do") == "check"
    kind = await to_thread.run_sync(detect_batch_archive_kind, file)
    name, options = (
        _parse_batch_name(form.inputs.get("name", "")),
        parse_batch_reading_options(form.inputs),
    )
    batch_request = BatchRequestOptions(
        model["id"],
        name,
        "only" if is_check else None,
        conflicts_policy=_parse_conflicts_policy(form.inputs),
        options=options,
        again=_is_relearning_requested(form.inputs),
    )
    order = replace(order, request=batch_request, override=form.patch or None, trials=trials.asked)
    # The fields are in the order already: a second recipe would be refused.
    submission = await order.build_submission(replace(file, kind=kind, fields={}), None)
    if is_check:
        report = await to_thread.run_sync(submission.preview_submission)
        return _render_submit_form(
            request, _SubmitPageContent(model, form, report=report, trials=trials)
        )
    result = await to_thread.run_sync(submit_batch_or_measure_adopted_classifier, submission)
    if result.is_new:
        order.bell.notify_workers(result.job)
    # A held batch that is sent with another recipe is learned again, by a new job.
    query_suffix = "?sent_again=true" if "repeats" in result.response and not result.is_new else ""
    return RedirectResponse(
        f"{get_root_path(request.scope)}/ui/jobs/{result.job}{query_suffix}", 303
    )


def _is_relearning_requested(inputs: Mapping[str, str]) -> bool:
    """Return True if the form asks to learn the batch even if the model already has it."""
    return inputs.get("again") == "true"


def detect_batch_archive_kind(file: ReceivedUpload) -> str:
    """Detect the archive type of an uploaded batch. Raises Invalid if its file is empty.

    Call it after all of the form has been received: later fields may follow the file.
    """
    if not file.size:
        raise Invalid(f"No file was chosen: choose a {FORMATS} of labelled images.")
    with file.path.open("rb") as opened:
        return detect_upload_format(opened.read(SNIFF_BYTES), None)


def _parse_conflicts_policy(inputs: Mapping[str, str]) -> ConflictsPolicy:
    return "keep" if inputs.get("conflicts") == "keep" else "reject"


def _parse_batch_name(text: str) -> str | None:
    try:
        if len(text) > MAX_NAME_CHARS:
            raise ValueError(f"has {len(text)} characters; {MAX_NAME_CHARS} are allowed")
        return validate_and_normalise_name(text) if text else None
    except ValueError as error:
        raise Invalid(f"The name of the batch {error}.") from None


@dataclass(frozen=True)
class _SubmitPageContent:
    """Template data of the page that submits a batch.

    Attributes:
        wrong: why the batch was refused.
        report: the findings of a check.
        remedies: options that would make it acceptable, {"option", "value", "does"}.
        trials: the recipes that are compared.
    """

    model: ModelOut
    form: RecipeForm
    wrong: str | None = None
    report: Report | None = None
    remedies: Sequence[Mapping[str, str]] = ()
    trials: TrialsForm = NO_TRIALS


def _render_submit_form(request: Request, shown: _SubmitPageContent, status: int = 200) -> Response:
    inputs = shown.form.inputs
    files = [one for one in inputs.get("file_names", "").split("\n") if one.strip()][:FILES]
    settings = request.app.state.settings
    context = {
        "model": shown.model,
        "form": shown.form,
        "trials": shown.trials,
        "wrong": shown.wrong,
        "report": shown.report,
        "remedies": shown.remedies,
        "most": settings.max_body_bytes,
        "formats": FORMATS,
        "types": forms.ARCHIVE_TYPES,
        "commands": _build_equivalent_commands(
            request, shown, files or ["BATCH.zip"], inputs.get("name", "")
        ),
    }
    return render_page(request, "submit.html", context, status)


def _build_equivalent_commands(
    request: Request, shown: _SubmitPageContent, files: list[str], name: str
) -> tuple[str, str]:
    """Return the commands of the command line and of curl that do the same as the batch form."""
    model, patch = shown.model["name"], shown.form.patch_json
    recipe = f" --recipe {shlex.quote(patch)}" if shown.form.patch else ""
    header = f" \\\n  -H {shlex.quote(f'Perennial-Recipe: {patch}')}" if shown.form.patch else ""
    base = f"{request.url.scheme}://{request.url.netloc}{get_root_path(request.scope)}"
    commands, curl_commands = [], []
    for file in files:
        # A program would take a name that begins with a dash for an option.
        file = f"./{file}" if file.startswith("-") else file
        # The name would be the same for all files.
        label = name if name and len(files) == 1 else ""
        named = f" --name {shlex.quote(label)}" if label else ""
        commands.append(
            f"perennial submit {model} {shlex.quote(file)}{named}{recipe}{shown.trials.command_line_options}"
        )
        query = (
            f"?name={quote(label or FORMATS.strip_archive_ending(PurePath(file).name), safe='')}"
            f"{shown.trials.url_query}"
        )
        curl_commands.append(
            f'curl -H "Authorization: Bearer $PERENNIAL_API_KEY" -H \'Content-Type: '
            f"application/octet-stream'{header} \\\n  --data-binary {shlex.quote(f'@{file}')} "
            f"{shlex.quote(f'{base}/v1/models/{model}/tasks{query}')}"
        )
    return "\n".join(commands), "\n".join(curl_commands)
