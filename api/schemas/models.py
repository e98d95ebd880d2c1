"""Request bodies about models."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from api.schemas.common import Prose, Reason, StrictRequestBody
from core.contract.patch import ArchitectureIn, RecipePatch
from core.contract.responses.model import Scenario
from core.ids import NAME_PATTERN
from perennial.characters import validate_and_normalise_name

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
Rate = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class VersionRef(StrictRequestBody):
    """Another model's version as a base."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    version: Annotated[int, Field(ge=0, lt=2**31)]


class ImageIn(StrictRequestBody):
    """Size and channels of decoded images: `size` × `size` pixels with 1 (grey) or 3 (RGB)
    channels.
    """

    size: Annotated[int, Field(ge=8, le=1024)] = 32
    channels: Literal[1, 3] = 3


class GateIn(StrictRequestBody):
    """Checks that a version must pass before `production` moves to it; null: the check is off.

    `max_predicted_loss_rise`: largest rise of the earlier tasks' mean loss that the method
    forecasts before measurement, in units of its loss (dlcft); a version without a forecast passes.
    `max_negative_flips`: largest share of held-out images that the production version predicts
    correctly and the new one incorrectly, over the tasks that both predict; a version with nothing
    to compare with passes. `min_coverage`: smallest share of held-out images with a sure
    prediction; requires `answers`.

    The other checks compare a version with the production version, image by image, on held-out
    images of earlier tasks. A new model has all of them on; without images they pass as not
    measured. A loss counts only if it is significant (McNemar's exact one-sided test, p < 0.01).
    `forgotten`: largest net share that turned incorrect, with predictions restricted to classes
    that both know. `confused`: largest share of images that production predicts correctly and that
    are assigned to a class new in this batch. `class_lost`: a class fails if at most this share of
    it is correct; it has at least 5 images, and production had half of them correct. `drifted`: as
    `forgotten`, for each task against the best of the last 20 versions. `learned_nothing`: fails if
    at most this share of at least 10 images of the batch's new classes is correct, or if the
    version is significantly worse on the batch's known classes. `features_collapsed`: largest loss
    of a linear discriminant's accuracy on the features, against the best of the last 20 ancestors;
    a loss counts if it exceeds two standard errors. `checks` sets all of them to the limits of a
    new model ("on") or to null ("off"); the fields beside it are applied afterwards.
    """

    checks: Literal["on", "off"] | None = None

    max_forgetting: Rate | None = None
    min_new_task: Rate | None = None
    min_acc: Rate | None = None
    max_predicted_loss_rise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_negative_flips: Rate | None = None
    forgotten: Rate | None = None
    confused: Rate | None = None
    class_lost: Rate | None = None
    drifted: Rate | None = None
    learned_nothing: Rate | None = None
    features_collapsed: Rate | None = None
    min_coverage: Rate | None = None


class AnswersIn(StrictRequestBody):
    """The required precision of sure predictions: at least this share of them is correct."""

    precision: Annotated[float, Field(gt=0.5, lt=1)]


Promise = Annotated[
    AnswersIn | None,
    Field(description="What is promised of answers that are called sure; null: none is"),
]


Tag = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63),
    AfterValidator(validate_and_normalise_name),
]


def _refuse_duplicate_tags(tags: list[str]) -> list[str]:
    twice = sorted({tag for tag in tags if tags.count(tag) > 1})
    if twice:
        raise ValueError(f"must not name {twice[0]!r} twice")
    return tags


Description = Annotated[Prose, Field(description="What people are told of the model")]
Tags = Annotated[
    list[Tag],
    Field(max_length=20, description="Words that people find it by, none twice"),
    AfterValidator(_refuse_duplicate_tags),
]
OnEvent = Literal["stop", "continue"]
OnHeld = Annotated[
    OnEvent,
    Field(
        description="After a held version: later batches wait until a person settles it (stop), or "
        "its task is skipped"
    ),
]
OnRejected = Annotated[
    OnEvent,
    Field(
        description="After a rejected batch: later ones wait until a person discards it (stop), or "
        "go on"
    ),
]
OnFailed = Annotated[
    OnEvent,
    Field(
        description="After a failed job: later ones wait until it is retried or discarded (stop), "
        "or go on"
    ),
]
Days = Annotated[
    float,
    Field(
        ge=0,
        le=3650,
        allow_inf_nan=False,
        description="Days for which training images are kept after a publish, so that a task can "
        "be learned again; 0: not at all",
    ),
]
MayLose = Annotated[
    bool,
    Field(description="Whether a version that lacks what the model has learned may pass its gate"),
]


class ModelIn(StrictRequestBody):
    """A new model; only `name` and `scenario` are required."""

    name: Name
    scenario: Scenario
    problem: Annotated[
        Annotated[str, StringConstraints(min_length=1, max_length=40)] | None,
        Field(description="What it predicts for an image. Default: classification"),
    ] = None
    architecture: Annotated[
        Annotated[str, StringConstraints(max_length=128)] | ArchitectureIn | None,
        Field(
            description="A name, or a name with hyper-parameters. Default: that of the base of the "
            "package"
        ),
    ] = None
    image: ImageIn = ImageIn()
    base: Annotated[
        Annotated[str, StringConstraints(max_length=40)] | VersionRef | None,
        Field(
            description="Default: the weights that there are for the architecture by name, else "
            "random"
        ),
    ] = None
    classes: Annotated[list[Label], Field(min_length=1, max_length=10_000)] | None = None
    # Checked later by the catalogue: the API does not import the code that defines recipes.
    recipe: RecipePatch = Field(default_factory=dict)
    gate: GateIn = GateIn()
    answers: Promise = None
    keep_training_data: bool = False
    held_out: Literal["keep", "counts"] = "keep"
    selection: Annotated[
        bool,
        Field(
            description="Set 5 % of each class of 8 images or more aside: no job learns from them, "
            "and trials are compared on them"
        ),
    ] = False
    # Otherwise later batches are learned without the held task (docs/design/decisions.md, 7).
    on_held: OnHeld = "stop"
    on_rejected: OnRejected = "continue"
    on_failed: OnFailed = "continue"
    # Long enough to learn a task again after a rollback.
    training_data_days: Days = 7.0
    allow_lost_classes: MayLose = False
    description: Description | None = None
    tags: Tags = Field(default_factory=list)


class ModelPatch(StrictRequestBody):
    """Changes of a model; null resets a field.

    Recipe and gate (merge patches, RFC 7396) apply to later tasks and retries, the others from now
    on.
    """

    recipe: RecipePatch | None = None
    gate: GateIn | None = None
    answers: Promise = None
    on_held: OnHeld | None = None
    on_rejected: OnRejected | None = None
    on_failed: OnFailed | None = None
    training_data_days: Days | None = None
    allow_lost_classes: MayLose | None = None
    description: Description | None = None
    tags: Tags | None = None


class RebaseIn(StrictRequestBody):
    """The base to which a model moves, as for a new model, and the name of the replacing model."""

    base: Annotated[str, StringConstraints(min_length=1, max_length=40)] | VersionRef
    name: Annotated[Name | None, Field(description="Default: the model's own with -rebased")] = None


class RebaseFinish(StrictRequestBody):
    """The reason why production moves, and the policy for missing or unmeasured tasks."""

    reason: Reason | None = None
    missing: Annotated[
        Literal["refuse", "allow"],
        Field(description="Whether production moves though something is missing"),
    ] = "refuse"
