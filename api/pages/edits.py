"""`/ui/models/{model}/edits`: what was changed, the plan of a change before its button, and undo.

Also the pages that a change begins on: `…/classes`, and `…/tasks/{n}/images`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from api.dependencies import Bell, Db, Page, Read, Service, Write
from api.pages.model import apply_model_change_and_redirect
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from api.routes.edits import Number as EditNumber
from api.routes.tasks import Number
from api.schemas.common import ModelPath
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.edit import EditPlanOut
from core.contract.responses.model import ModelOut
from core.contract.responses.task_image import Split
from core.database.session import Database
from core.edits import acceptance, listing, purge, undo
from core.edits.operations import Operation
from core.errors import Invalid, PerennialError, WrongState
from core.models import models
from core.models.class_counts import read_model_class_counts
from core.requests.actor import Actor
from core.tasks import task_images, tasks

router = APIRouter(include_in_schema=False)

IMAGES = 48
"""Images of a page."""
CLASSES = 200
"""Classes of a page."""
MERGED = 40
"""Classes that a page merges at once."""
TICKED = "ticked."
"""Begin of the names of boxes, since each field of a form has a name of its own."""
What = Literal["relabel", "remove", "rename", "merge", "drop"]
Label = Annotated[str | None, Query(alias="class", max_length=100, description="Only this class")]
Text = Annotated[str | None, Query(max_length=10_000, description="Part of a choice")]
From = Annotated[str | None, Query(max_length=300, description="Cursor of the page before")]


@dataclass(frozen=True)
class EditDraft:
    """The edit that a person is putting together on the pages: kind, images or classes, new name.

    Attributes:
        what: the kind of its operations; None: nothing is chosen.
        task, part, images: images that are relabelled or removed.
        names: classes that are renamed, merged or dropped.
        to: the new label or name; "": not chosen yet.
    """

    what: What | None = None
    task: int | None = None
    part: Split = "train"
    images: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    to: str = ""

    @property
    def has_all_choices(self) -> bool:
        """True if every choice that the edit needs has been made."""
        if self.what in ("relabel", "remove"):
            return bool(self.images) and (self.what == "remove" or bool(self.to))
        return bool(self.names) and (self.what == "drop" or bool(self.to))

    @property
    def url_query(self) -> str:
        """The choices of an edit as a URL query."""
        values: dict[str, object] = {"what": self.what or "", "to": self.to}
        if self.task is not None:
            values |= {"task": self.task, "part": self.part}
        if self.images:
            values["images"] = ",".join(map(str, self.images))
        if self.names:
            values["names"] = json.dumps(self.names, ensure_ascii=False)
        return urlencode(values)

    def build_edit_operations(self) -> list[Operation]:
        """Return the edit operations that a person's complete choice stands for.

        Raises:
            Invalid: a name or number in it is none.
        """
        image: dict[str, Any] = {"task": self.task, "part": self.part}
        documents: list[dict[str, Any]] = {
            "relabel": [
                {"relabel": {**image, "image": one, "label": self.to}} for one in self.images
            ],
            "remove": [{"remove": {**image, "image": one}} for one in self.images],
            "rename": [{"rename": {"from": one, "to": self.to}} for one in self.names],
            "merge": [{"merge": {"from": self.names, "into": self.to}}],
            "drop": [{"drop": {"class": one}} for one in self.names],
            None: [],
        }[self.what]
        try:
            return [Operation.model_validate(one) for one in documents]
        except ValidationError as error:
            first = error.errors()[0]
            raise Invalid(f"This cannot be done so: {first['msg']}.") from None


@dataclass(frozen=True)
class EditDraftQuery:
    """Query parameters of a link that describe an edit; `parse_edit_draft` reads them."""

    what: Text = None
    task: Text = None
    part: Text = None
    images: Text = None
    name: Text = None
    names: Text = None
    to: Text = None


@dataclass(frozen=True)
class TaskImagesPageQuery:
    """Part, class and first image of the list of a task's images on a page."""

    part: Split = "train"
    label: Label = None
    after: From = None


def explain_edit_refusal_or_reraise(error: PerennialError) -> str:
    """Return the reason why an edit was refused; raise errors of the service itself."""
    if error.status >= 500:
        raise error
    return error.detail


def parse_edit_draft(values: Mapping[str, str]) -> EditDraft:
    """Parse the choices of an edit from query values.

    Args:
        values: `what`, `task`, `part`, `images` (numbers with commas), `name` (one class) or
            `names` (a JSON list), `to`; each may be missing.

    Raises:
        Invalid: it has an unknown kind, something that is no number, or too many images.
    """
    what, part = values.get("what", ""), values.get("part") or "train"
    if what not in ("", *get_args(What)):
        raise Invalid(f"what is one of {', '.join(get_args(What))}.")
    if part not in get_args(Split):
        raise Invalid("part is train or held_out.")
    images = [one for one in values.get("images", "").split(",") if one.strip()]
    names = _parse_class_names(values)
    if len(images) > IMAGES or len(names) > MERGED:
        raise Invalid(f"Choose at most {IMAGES} images or {MERGED} classes at once.")
    return EditDraft(
        what=what or None,  # type: ignore[arg-type]
        task=forms.parse_form_whole_number(dict(values), "task") if values.get("task") else None,
        part=part,  # type: ignore[arg-type]
        images=sorted(
            {forms.parse_form_whole_number({"image": one.strip()}, "image") for one in images}
        ),
        names=names,
        to=values.get("to", "").strip(),
    )


def _parse_class_names(values: Mapping[str, str]) -> list[str]:
    if values.get("name"):
        return [values["name"]]
    try:
        names = json.loads(values.get("names") or "[]")
    # Text with thousands of brackets makes the JSON parser raise a RecursionError.
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid("names is a list of classes, in JSON.")
    return list(dict.fromkeys(names))


@router.get("/ui/models/{model}/classes")
def show_model_classes_page(
    request: Request, model: ModelPath, actor: Read, service: Service
) -> Response:
    """Show the classes of a model with forms that rename, merge or drop them, and former names."""
    db = service.db
    model_response = models.read_model(db, service.catalogue(), actor, model)
    context = {
        "model": model_response,
        "counts": read_model_class_counts(db, actor, model_response["id"]),
        "former": listing.list_class_aliases(db, actor, model_response["id"]),
        "shown": CLASSES,
    }
    return render_page(request, "classes.html", context)


@router.post("/ui/models/{model}/classes/forget")
async def handle_remove_former_name_form(
    request: Request, model: ModelPath, actor: Write, db: Db
) -> Response:
    """Remove a former class name."""
    name = (await forms.read_values_of_own_page_form(request)).get("name", "")
    await to_thread.run_sync(listing.remove_class_alias, db, actor, model, name)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}/classes", 303)


@router.get("/ui/models/{model}/tasks/{n}/images")
async def show_task_images_page(
    request: Request,
    model: ModelPath,
    n: Number,
    actor: Read,
    service: Service,
    shown: Annotated[TaskImagesPageQuery, Depends()],
) -> Response:
    """Show the images of a task, with a form that relabels or removes chosen ones."""
    db, blobs = service.db, service.blobs
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, model)
    )
    task = await to_thread.run_sync(tasks.read_task, db, actor, model_response["id"], n)
    label = shown.label or None
    images, why = None, ""
    try:
        dataset_reference = await to_thread.run_sync(
            task_images.find_task_split_dataset, db, actor, model_response["id"], n, shown.part
        )

        def list_images() -> Any:
            with task_images.translate_deleted_image_errors(
                db, actor, model_response["id"], dataset_reference
            ):
                return task_images.list_task_split_images(
                    blobs, dataset_reference, label=label, limit=IMAGES, cursor=shown.after
                )

        images = await service.picture_work.run_work_in_turn(actor.owner_id, list_images)
    except PerennialError as error:
        why = explain_edit_refusal_or_reraise(error)
    context = {
        "model": model_response,
        "task": task,
        "part": shown.part,
        "label": label,
        "images": images,
        "why": why,
        "after": shown.after,
        "names": await to_thread.run_sync(
            _list_class_names_for_label_input, db, actor, model_response["id"]
        ),
    }
    return render_page(request, "images.html", context)


@router.get("/ui/models/{model}/edits")
def show_edits_page(
    request: Request, model: ModelPath, actor: Read, service: Service, page: Page
) -> Response:
    """Show the edits of a model, newest first."""
    db = service.db
    model_response = models.read_model(db, service.catalogue(), actor, model)
    edits = listing.list_edits(db, actor, model_response["id"], page.limit, page.cursor)
    return render_page(request, "edits.html", {"model": model_response, "edits": edits})


@router.get("/ui/models/{model}/edits/plan")
async def show_edit_plan_page(
    request: Request,
    model: ModelPath,
    actor: Read,
    service: Service,
    query: Annotated[EditDraftQuery, Depends()],
) -> Response:
    """Show which changes an edit would make, with the button that submits it."""
    choice = parse_edit_draft(
        {name: value for name, value in asdict(query).items() if value is not None}
    )
    db = service.db
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, model)
    )
    plan: EditPlanOut | None = None
    why = ""
    if choice.has_all_choices:
        try:
            plan = await to_thread.run_sync(
                lambda: acceptance.plan_edit(
                    service.load_use_case_resources(),
                    actor,
                    model_response["id"],
                    choice.build_edit_operations(),
                )
            )
        except PerennialError as error:
            why = explain_edit_refusal_or_reraise(error)
    context = {
        "model": model_response,
        "choice": choice,
        "plan": plan,
        "why": why,
        "names": await to_thread.run_sync(
            _list_class_names_for_label_input, db, actor, model_response["id"]
        ),
    }
    return render_page(request, "plan.html", context)


@router.post("/ui/models/{model}/edits/plan")
async def handle_plan_edit_of_ticked_rows_form(
    request: Request, model: ModelPath, actor: Write, db: Db
) -> Response:
    """Show the plan of an edit of the images or classes whose boxes are ticked."""
    inputs = await forms.read_values_of_own_page_form(request, IMAGES + CLASSES)
    await to_thread.run_sync(
        _list_class_names_for_label_input, db, actor, model
    )  # another owner's model is not found
    ticked = [value for name, value in inputs.items() if name.startswith(TICKED)]
    is_image = inputs.get("what") in ("relabel", "remove")
    chosen = {"images": ",".join(ticked)} if is_image else {"names": json.dumps(ticked)}
    choice = parse_edit_draft({**inputs, **chosen})
    where = f"{get_root_path(request.scope)}/ui/models/{model}/edits/plan?{choice.url_query}"
    return RedirectResponse(where, 303)


@router.post("/ui/models/{model}/edits")
async def handle_submit_edit_form(
    request: Request, model: ModelPath, actor: Write, service: Service
) -> Response:
    """Submit an edit whose plan was shown, and queue its job."""
    inputs = await forms.read_values_of_own_page_form(request)
    choice = parse_edit_draft(dict(parse_qsl(inputs.get("choice", ""), keep_blank_values=True)))
    reason = forms.read_form_reason(inputs)

    def accept_edit() -> str:
        model_response: ModelOut = models.read_model(service.db, service.catalogue(), actor, model)
        if not choice.has_all_choices:
            raise Invalid("Nothing is chosen to be changed.")
        shown = forms.parse_form_whole_number(inputs, "head")
        # Numbers of images may have changed since the plan was shown.
        if model_response["line_head"] != shown:
            raise WrongState(
                f"The model continues from version {model_response['line_head']} now; the plan was for "
                f"version {shown}. Look at the plan again."
            )
        limits = NewJobLimits(
            service.settings.max_open_jobs, AdmissionLimits.from_settings(service.settings)
        )
        edit_request = acceptance.EditRequest(
            model_response["id"], choice.build_edit_operations(), reason, shown
        )
        edit, _ = acceptance.accept_edit(
            service.load_use_case_resources(), actor, edit_request, limits
        )
        return edit["job"]

    job = await to_thread.run_sync(accept_edit)
    service.bell.notify_workers(job)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/jobs/{job}", 303)


@router.post("/ui/models/{model}/edits/{n}/undo")
async def handle_undo_edit_form(
    request: Request, model: ModelPath, n: EditNumber, actor: Write, db: Db, bell: Bell
) -> Response:
    """Undo an edit, and show the model."""
    reason = forms.read_form_reason(await forms.read_values_of_own_page_form(request))
    return await apply_model_change_and_redirect(
        request, model, lambda: undo.undo_edit(db, actor, model, n, reason)[1], bell
    )


@router.post("/ui/models/{model}/edits/{n}/purge")
async def handle_purge_edit_form(
    request: Request, model: ModelPath, n: EditNumber, actor: Write, service: Service
) -> Response:
    """Delete from older versions the data of images that an edit removed, and show the edits again."""
    await forms.read_values_of_own_page_form(request)
    await to_thread.run_sync(
        purge.purge_data_removed_by_edit, service.db, service.blobs, actor, model, n
    )
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}/edits", 303)


def _list_class_names_for_label_input(db: Database, actor: Actor, model: str) -> list[str]:
    """Return the class names that a label input suggests."""
    return [one.label for one in read_model_class_counts(db, actor, model).classes]
