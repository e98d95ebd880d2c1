"""Bodies of requests about models."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from api.schemas.common import Body, Prose, Reason
from core import characters
from core.ids import NAME_PATTERN
from core.protocol.answers.model import Scenario
from core.protocol.patch import ArchitectureIn, RecipePatch

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
Rate = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class VersionRef(Body):
    """Another model's version as a base."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    version: Annotated[int, Field(ge=0, lt=2**31)]


class ImageIn(Body):
    """Images are decoded to `size` × `size` pixels with 1 (grey) or 3 (RGB) channels."""

    size: Annotated[int, Field(ge=8, le=1024)] = 32
    channels: Literal[1, 3] = 3


class GateIn(Body):
    """What a version must show before `production` moves to it; null: not asked.

    `max_predicted_loss_rise`: of the earlier tasks' mean loss, as the method's forecast says before anything is
    measured, in units of its loss (dlcft); a version without a forecast passes. `max_negative_flips`: the share of
    held-out images that the version in production answers right and the new one wrong, over the tasks that
    both answer; a version with nothing to be compared with passes. `min_coverage`: the share of held-out images that
    is answered surely, see `answers`, which it needs.

    The others are checks that compare a version with the one in production, image by image, on held-out images of
    earlier tasks. A new model has all of them on; without images they pass as not measured. A loss counts only if it is
    significant (McNemar's exact one-sided test, p < 0.01). `forgotten`: the net share that turned wrong, where
    only classes may be answered that both know. `confused`: the share of images that production answers right and
    that are called by a class new in this batch. `class_lost`: the share right, at most, of a class with 5 images and
    more of which production had half right. `drifted`: as `forgotten`, of each task beside the best of the last 20
    versions. `learned_nothing`: the share right, at most, of 10 images and more of the batch's new classes; a version
    that is significantly worse on the batch's known classes fails too. `features_collapsed`: the accuracy that a linear
    discriminant on the features may lose, at most, beside the best of the last 20 ancestors; a loss counts if it
    exceeds two standard errors. `checks` sets all of them: to the limits of a new model ("on"), or to null ("off");
    what stands beside it comes after it.
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


class AnswersIn(Body):
    """The promise that sure answers keep: a share of them of at least `precision` is right."""

    precision: Annotated[float, Field(gt=0.5, lt=1)]


Promise = Annotated[
    AnswersIn | None, Field(description="What is promised of answers that are called sure; null: none is")
]


Tag = Annotated[str, StringConstraints(min_length=1, max_length=63), AfterValidator(characters.name)]


def _once(tags: list[str]) -> list[str]:
    twice = sorted({tag for tag in tags if tags.count(tag) > 1})
    if twice:
        raise ValueError(f"must not name {twice[0]!r} twice")
    return tags


Description = Annotated[Prose, Field(description="What people are told of the model")]
Tags = Annotated[
    list[Tag],
    Field(max_length=20, description="Words that people find it by, none twice"),
    AfterValidator(_once),
]
OnEvent = Literal["stop", "continue"]
OnHeld = Annotated[
    OnEvent,
    Field(
        description="After a held version: later batches wait until a person settles it (stop), or its task is skipped"
    ),
]
OnRejected = Annotated[
    OnEvent,
    Field(description="After a rejected batch: later ones wait until a person discards it (stop), or go on"),
]
OnFailed = Annotated[
    OnEvent,
    Field(
        description="After a failed job: later ones wait until it is retried or discarded (stop), or go on"
    ),
]
Days = Annotated[
    float,
    Field(
        ge=0,
        le=3650,
        allow_inf_nan=False,
        description="Days for which training images are kept after a publish, so that a task can be learned again; "
        "0: not at all",
    ),
]
MayLose = Annotated[
    bool, Field(description="Whether a version that lacks what the model has learned may pass its gate")
]


class ModelIn(Body):
    """A new model; only `name` and `scenario` are required."""

    name: Name
    scenario: Scenario
    architecture: Annotated[
        Annotated[str, StringConstraints(max_length=128)] | ArchitectureIn | None,
        Field(
            description="A name, or a name with hyper-parameters. Default: that of the base of the package"
        ),
    ] = None
    image: ImageIn = ImageIn()
    base: Annotated[
        Annotated[str, StringConstraints(max_length=40)] | VersionRef | None,
        Field(description="Default: the weights that there are for the architecture by name, else random"),
    ] = None
    classes: Annotated[list[Label], Field(min_length=1, max_length=10_000)] | None = None
    recipe: RecipePatch = Field(default_factory=dict)
    gate: GateIn = GateIn()
    answers: Promise = None
    keep_training_data: bool = False
    held_out: Literal["keep", "counts"] = "keep"
    on_held: OnHeld = "stop"
    on_rejected: OnRejected = "continue"
    on_failed: OnFailed = "continue"
    training_data_days: Days = 7.0
    allow_lost_classes: MayLose = False
    description: Description | None = None
    tags: Tags = Field(default_factory=list)


class ModelPatch(Body):
    """Changes: recipe and gate (merge patches, RFC 7396) for later tasks and retries, the rest from now on;
    null resets."""

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


class RebaseIn(Body):
    """The base to which a model moves, as for a new model, and the name of the model that is to replace it."""

    base: Annotated[str, StringConstraints(min_length=1, max_length=40)] | VersionRef
    name: Annotated[Name | None, Field(description="Default: the model's own with -rebased")] = None


class RebaseFinish(Body):
    """The reason why production moves, and what happens where tasks have not arrived or are not measured."""

    reason: Reason | None = None
    missing: Annotated[
        Literal["refuse", "allow"], Field(description="Whether production moves though something is missing")
    ] = "refuse"
