"""The answers of the API. Written by `python -m tools.client_types` from its OpenAPI document: change nothing here."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any, Literal

from perennial.shapes import DataFrameResponse, ResponseObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(ResponseObject):
    """Response to an accepted batch: its task, and the job that learns it.

    - `repeats`: set if the model has a task with the same content. Then `task` is that task, and
      `job` learns or has learned it. Nothing was added, except for a held task that is retried with
      another recipe.
    - `expected_s`: expected duration of the job in seconds once it begins. It is based on the
      model's earlier jobs, else on one core by its base; null: nothing was measured.
    """

    task: Task
    job: Job
    expected_s: float | None = None
    repeats: Repeats | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts(ResponseObject):
    """Combinations of scenario, network and optimizer that a learning method accepts.

    - `architectures`: families; null: all.
    - `task_only`: hyper-parameters that must be off outside the task scenario.
    - `refused`: by scenario, the values of hyper-parameters that do not work there.
    - `unfit`: by family of architectures and hyper-parameter, the values that do not work on it. A
      family without hyper-parameters does not work with the method at all.
    """

    optimizers: list[str]
    depths: list[int]
    head_inits: list[str]
    olor: bool
    architectures: list[str] | None
    task_only: list[str]
    refused: dict[str, dict[str, Any]]
    unfit: dict[str, dict[str, list[str]]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(ResponseObject):
    """A suggested request that settles an attention item; `body` null: the request has no JSON
    body.
    """

    title: str
    method: str
    path: str
    body: ActionBody | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionBody(ResponseObject):
    """JSON body of a suggested request; a person replaces each `…` in it."""

    version: int | None = None
    reason: str | None = None
    recipe: RecipePatch | None = None
    trial: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adp(ResponseObject):
    """Anytime Deployment Performance: the mean accuracy by task, and the curve over training steps."""

    mean: dict[str, float]
    curve: list[AdpPoint]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdpPoint(ResponseObject):
    """Point of the Anytime Deployment Performance curve: best state by `step`, its validation and
    task accuracies.
    """

    step: int
    best_step: int
    validation: float
    accuracy: dict[str, float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(ResponseObject):
    """An alias of a model, such as `production`, and the version that it points to.

    For `production` it also says whether the alias follows the lineage, and what its move has cost.
    """

    name: str
    version: int
    updated_at: str
    follows: bool | None
    line_head: int | None
    lost_tasks: list[LostTask]
    warnings: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove(ResponseObject):
    """One move of an alias from a version to another.

    `cause` is create, publish, set, rollback or follow; `key` is null for a worker.
    """

    id: int
    version: int
    previous: int | None
    cause: str
    key: str | None
    reason: str | None
    at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMoved(ResponseObject):
    """Data of an owner event: an alias moved to another version.

    - `version`: null: the alias was deleted.
    - `previous`: null: the alias is new.
    - `cause`: create, publish, set, rollback, follow, delete or rebase. After a rebase the model
      has the name, and so the place, of another one.
    """

    alias: str
    version: int | None
    previous: int | None
    cause: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasState(ResponseObject):
    """The version that an alias points to now."""

    alias: str
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(ResponseObject):
    """Response of the liveness probe: the process responds."""

    status: Literal["ok"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChanges(ResponseObject):
    """Numbers of images that only the parent or only the version classifies correctly, and of all
    images.
    """

    regressed: int
    improved: int
    total: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSetting(ResponseObject):
    """The share of confident ("sure") answers that a model promises to be correct, between 0.5 and
    1.
    """

    precision: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(ResponseObject):
    """Catalogue entry of a network architecture, with its name."""

    schema: dict[str, Any]
    defaults: dict[str, Any]
    scenarios: list[str]
    description: str
    source: str
    family: str
    min_size: int
    recommended: dict[str, str] | None = None
    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureChoice(ResponseObject):
    """An architecture's name, with its hyper-parameters beside it."""

    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(ResponseObject):
    """An attention item: something in a model that waits for a person, and the requests that settle
    it.

    One of `actions` settles it; the first repairs its cause. `kind`: held, rolled_back, rejected or
    failed, of a task; choosing: the trials of its job wait for a choice; base: the weights of the
    model's base could not be fetched.

    `version` is the held one, or for a task that was rolled back the one that knew it;
    `training_data_until`: the day from which it can no longer be learned again. `pictures`: of a
    held version, a few held-out images that production classifies correctly and it does not.
    `reasons`: of a held version, a sentence for each check that failed.
    """

    kind: str
    version: int | None
    task: int | None
    since: str | None
    training_data_until: str | None
    detail: str
    actions: list[Action]
    reasons: list[str]
    pictures: list[CheckPicture]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(ResponseObject):
    """One entry of the audit trail: a change, and the key that made it.

    - `key`: null for a worker.
    - `model`: id of the model concerned; null if there is none.
    """

    id: int
    at: str
    owner: str
    key: str | None
    action: str
    object: str
    model: str | None
    data: AuditData
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditData(ResponseObject):
    """Recorded details of an audited change. The action determines the fields.

    - `retry_of`: the job that failed or whose version was held.
    - `published`: versions that a gate passed because of the change.
    - `host`: host of a webhook's URL.
    - `changed`: names of the webhook's changed fields.
    - `former_name`: previous name of a model that took another one's name.
    - `judged`: "again" if a gate passed a version later.
    - `left_out`: names of the fields of a change that is too large to be recorded; `bytes`: its
      size.
    """

    recipe: RecipePatch | None = None
    gate: GateLimits | None = None
    answers: AnswersSetting | None = None
    on_held: str | None = None
    on_rejected: str | None = None
    on_failed: str | None = None
    training_data_days: float | None = None
    allow_lost_classes: bool | None = None
    description: str | None = None
    tags: list[str] | None = None
    from_: str | None = None
    to: str | None = None
    name: str | None = None
    former_name: str | None = None
    host: str | None = None
    events: list[str] | None = None
    changed: list[str] | None = None
    owner: str | None = None
    scope: str | None = None
    scenario: str | None = None
    model: str | None = None
    number: int | None = None
    edit: int | None = None
    trial: int | None = None
    operations: int | None = None
    tasks: list[int] | None = None
    task: int | None = None
    job: str | None = None
    sha256: str | None = None
    bytes: int | None = None
    version: int | None = None
    versions: list[int] | None = None
    status: str | None = None
    judged: str | None = None
    alias: str | None = None
    previous: int | None = None
    reason: str | None = None
    note: str | None = None
    lost_tasks: list[int] | None = None
    published: list[int] | None = None
    retry_of: str | None = None
    left_out: list[str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base(ResponseObject):
    """An uploaded base: weights that models may start from.

    - `image`: the images that it was uploaded for; null if they were not given.
    - `normalise`: their statistics; null if they are unknown (then .5 and .25 are used).
    - `classes`: names of the rows of its classifier; null for a base without one.
    """

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: Image | None
    normalise: Normalisation | None
    classes: list[str] | None
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseOrigin(ResponseObject):
    """Origin of version 0: the base whose weights it has.

    It is an upload (id and digest), another model (id and version), or pretrained weights. Those
    have:

    - `name`: name of the weights.
    - `repository`, `revision`: origin and its commit; null: provided by a person.
    - `licence`: as the publisher names it; empty: it names none.
    - `sha256`, `bytes`: digest and size of the file.
    """

    id: str | None = None
    sha256: str | None = None
    model: str | None = None
    version: int | None = None
    name: str | None = None
    repository: str | None = None
    revision: str | None = None
    licence: str | None = None
    bytes: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseVersion(ResponseObject):
    """A version of another model, used as a base. `model` is its id or name, and always its id once
    stored.
    """

    model: str
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(ResponseObject):
    """Correct predictions of a simple classifier on the version's features, as [correct, total].

    They are five-fold over held-out images.

    - `all`, `tasks`: on all images, and by task.
    - `own`: of the version itself on the same images.
    """

    all: list[int]
    own: list[int]
    tasks: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheck(ResponseObject):
    """Result of `?validate=full`: findings after decoding all images of the batch.

    `valid`: whether a submit would accept the batch; null: the job ended before that was known, and
    `checked` names the basis of the other fields. `n_train`, `n_held_out`: images that would be
    learned and held out; `n_test`: images of the archive's own test part.
    """

    sha256: str
    bytes: int
    media_type: str
    layout: str
    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    notes: list[str]
    report: BatchReport
    not_checked: list[str]
    recipe: Recipe
    warnings: list[str]
    expected_s: float | None = None
    repeats: Repeats | None = None
    trials: list[TrialPlan] | None = None
    valid: bool | None
    checked: Literal["names and sizes", "images"]
    n_held_out: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport(ResponseObject):
    """Report on a batch: at first from file names and sizes, later from the decoded images.

    Lists are bounded (1,000 rejected files and bad entries, 100 of the others), counts are
    complete. Older tasks lack newer fields. `conflicts`: equal pixels under two classes;
    `near_conflicts`: nearly equal ones, which do not hold a batch; `conflicts_not_compared`:
    learned tasks without stored digests of pixels. `settled`: findings of `data` that held the
    batch until a person learned it as it is; they hold it no longer. `reading`: how the files
    became classes; `bad_entries`: entries of a label table that were left out. `small`: images
    whose longer side has fewer than 48 pixels.
    """

    checked: Literal["names and sizes", "images"] | None = None
    classes: ClassNames | None = None
    rejected: list[FileReason] | None = None
    rejected_count: int | None = None
    ignored: int | None = None
    ignored_files: list[FileReason] | None = None
    bad_entries: list[EntryReason] | None = None
    bad_entries_count: int | None = None
    duplicates: int | None = None
    duplicate_paths: list[Duplicate] | None = None
    duplicates_policy: Literal["keep", "drop"] | None = None
    duplicates_dropped: int | None = None
    reading: StoredReading | None = None
    small: int | None = None
    conflicts: list[Conflict] | None = None
    conflicts_count: int | None = None
    conflicts_policy: Literal["reject", "keep"] | None = None
    near_conflicts: list[Conflict] | None = None
    near_conflicts_count: int | None = None
    conflicts_not_compared: list[int] | None = None
    settled: list[Literal["balance", "conflicts", "near_duplicates", "suspects", "shift", "would_say"]] | None = None
    notes: list[str] | None = None
    data: DataReport | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(ResponseObject):
    """Calibration of a version's probabilities, measured on `images` held-out images.

    The images that a temperature was fitted to are not used to judge it.

    - `error`: expected calibration error minus the part due to chance.
    - `low`, `high`: its 95 % interval.
    - `raw`: error with the part due to chance.
    - `bins`: bins with equal numbers of images.
    - `curve`: points from the surest answers on, by the version's own temperature.
    """

    error: float
    low: float
    high: float
    raw: float
    images: int
    bins: list[CalibrationBin]
    curve: list[CoveragePoint]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationBin(ResponseObject):
    """Bin of a calibration curve: number of images, mean predicted probability, correct
    predictions.
    """

    images: int
    probability: float
    right: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMark(ResponseObject):
    """Mark of an accuracy-matrix cell whose labels or images an edit changed after it was counted.

    - `counted_again`: true if it was counted by the present labels, from stored predictions; else
      it is what was measured by the former labels.
    """

    version: int
    task: int
    mark: Literal["labels edited"]
    counted_again: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPicture(ResponseObject):
    """A held-out image that was classified correctly before and is classified wrongly now.

    `image`: its resource path.
    """

    task: int
    index: int
    label: str
    before: str
    now: str
    image: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAlias(ResponseObject):
    """A former class name that batches may still use, and the class that it now means.

    - `name`: the name in a batch.
    - `to`: the class that it stands for; null: the class was dropped.
    - `edit`: number of the edit that replaced it.
    """

    name: str
    to: str | None
    edit: int
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAliasPage(ResponseObject):
    """A page of a model's former class names, ordered by name."""

    items: list[ClassAlias]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount(ResponseObject):
    """Numbers of training and held-out images of one class in a batch.

    `held_out` of them are not learned from; null: not decided before the batch is decoded.
    """

    images: int
    held_out: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFlips(ResponseObject):
    """Predictions that changed between two versions, on the images of one class.

    `task`: the task of the class in the task scenario, where each task has its own classes.
    """

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int
    label: str
    task: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassNames(ResponseObject):
    """Comparison of a batch's class names with those that the model knows (task scenario: with each
    other).
    """

    new: list[str]
    known: list[str]
    look_alike: list[LookAlike]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShift(ResponseObject):
    """Shift of one known class: whether its new images differ from those learned before.

    - `images`, `earlier`: numbers of new and earlier images that were compared.
    - `outside`: share of the new ones further from the class's mean than 95 % of the earlier
      held-out ones; about 0.05 without a shift.
    """

    label: str
    images: int
    earlier: int
    outside: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(DataFrameResponse):
    """Comparison of two versions over all tasks that both can answer.

    - `classes`: the largest differences first, at most 1000 of `classes_total`.
    - `confusion`: null beyond 200 classes, and if tasks with their own classes are compared
      together.
    - `pairs`: pairs of a class and a wrong answer, at most 100, the largest differences first.
    - `recipe`, `manifest`: only the values that differ.
    """

    model: str
    a: ComparedVersion
    b: ComparedVersion
    totals: Flips
    tasks: list[TaskFlips]
    classes: list[ClassFlips]
    classes_total: int
    confusion: Confusion | None
    pairs: list[ConfusedPair]
    recipe: list[Difference]
    manifest: list[Difference]
    left_out: list[Left]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedImage(ResponseObject):
    """A held-out image in a comparison of versions: task, number, true label, both predictions and
    its picture.
    """

    task: int
    index: int
    label: str
    a: GivenAnswer
    b: GivenAnswer
    image: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedImagePage(ResponseObject):
    """A page of compared images, ordered by task and number; `total` counts all pages."""

    items: list[ComparedImage]
    total: int
    next_cursor: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVersion(ResponseObject):
    """One of the two versions in a comparison."""

    version: int
    parent: int | None
    task: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(ResponseObject):
    """The same image under two different labels: its two paths and both labels, in the same order.

    The second path is of the batch. `task`: the earlier task of the first. `picture`: the second as
    a small JPEG, a data URL; of the first ten.
    """

    paths: list[str]
    labels: list[str]
    task: int | None = None
    picture: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusedPair(ResponseObject):
    """Numbers of images of a class that versions `a` and `b` predict as a particular wrong class."""

    task: int | None
    label: str
    answer: str
    a: int
    b: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion(ResponseObject):
    """Confusion matrices of versions `a` and `b`: images by true label (row) and predicted label
    (column).
    """

    labels: list[str]
    a: list[list[int]]
    b: list[list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePoint(ResponseObject):
    """Point of an accuracy–coverage curve: least probability, number of images above it, and
    correct ones.
    """

    probability: float
    images: int
    right: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport(ResponseObject):
    """Report on a batch's images (duplicates, shift, suspect labels), as far as computed. Lists are
    bounded, counts are complete.

    - `imbalance_ratio`: images of the largest class for one of the smallest.
    - `few`: classes with fewer than 5 images, the first 100.
    - `conflicts`: images whose pixels have two classes.
    - `shift`: null if too few images are retained.
    - `would_say`: new classes, the 100 that are most surely taken for a known one, from at most
      1,000 images.
    - `suspects`: the 100 most suspicious of `suspects_count`, among `examined` training images.
    - `mislabelled`: known classes, the first 100, most of whose images the version that the job
      starts from predicts as another class, although it knows the class from earlier tasks.
    - `cost_s`: seconds that the analysis took.
    """

    balance: dict[str, ClassCount] | None = None
    imbalance_ratio: float | None = None
    few: list[str] | None = None
    conflicts: int | None = None
    near_duplicates: NearDuplicates | None = None
    shift: Shift | None = None
    suspects: list[Suspect] | None = None
    suspects_count: int | None = None
    examined: int | None = None
    would_say: list[WouldSay] | None = None
    mislabelled: list[Mislabelled] | None = None
    findings: list[Finding] | None = None
    cost_s: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(ResponseObject):
    """Digests of the task's training and held-out datasets."""

    train: str | None
    held_out: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(ResponseObject):
    """Delivery of one event to one webhook, with the attempts so far.

    - `id`: value of the header webhook-id.
    - `attempts`: attempts so far.
    - `next_at`: time of the next attempt; null: none follows.
    - `status`: HTTP status of the last response.
    - `error`: why that response does not count as accepted.
    """

    id: str
    webhook: str
    type: str
    model: str | None
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    next_at: str | None
    status: int | None
    error: str | None
    created_at: str
    sent_at: str | None
    finished_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDetail(ResponseObject):
    """Delivery of an event to a webhook, with the payload as sent.

    `answer`: first 4 kB of the last response's body; null for callers who are not administrators.
    """

    id: str
    webhook: str
    type: str
    model: str | None
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    next_at: str | None
    status: int | None
    error: str | None
    created_at: str
    sent_at: str | None
    finished_at: str | None
    payload: WebhookPayload
    answer: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(ResponseObject):
    """A recipe or manifest value that differs between two versions, by its path; null: absent."""

    path: str
    a: Any
    b: Any
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(ResponseObject):
    """An image, and the first image of the batch with the same bytes."""

    path: str
    same_as: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(ResponseObject):
    """One edit of a model's batches: classes merged, renamed or dropped, labels changed, or images
    removed.

    - `state`: state of its job.
    - `version`: the version that it made; null until then.
    - `images`: counted by its job.
    - `undo_until`: end of the time in which it can be undone; null if it cannot.
    - `undone_at`: time at which it was undone.
    - `files`: digests of the edited tasks' files before and after; empty until it is made.
    - `still_in_versions`: older versions that hold features or images of tasks from which it
      removed images; `POST …/purge` deletes these. Empty if it removed none.
    - `purge_request`: the one request that deletes these; null if there is nothing to delete.
    """

    number: int
    job: str
    state: str
    operations: int
    way: Literal["recompute", "relearn", "rename", "patch"]
    tasks: list[int]
    images: EditedImages
    parent: int
    version: int | None
    reason: str | None
    created_at: str
    undo_until: str | None
    undone_at: str | None
    files: list[EditedFiles]
    still_in_versions: list[int]
    purge_request: PurgeRequest | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPlan(ResponseObject):
    """Preview of the changes that an edit would make to a model.

    - `parent`: version that the edit would start from; send it along, and numbers of images cannot
      mean others.
    - `way`: `recompute` adds up kept features again; `relearn` learns again from kept images;
      `rename` learns nothing; `patch` changes rows of the classifier, without images.
    - `approximation`: what a patch cannot know, for a person; null where the version is exactly
      that of the edited batches.
    - `tasks`: tasks whose data changes.
    - `learned_again`: tasks that are learned again.
    - `classes_before`, `classes_after`: numbers of classes.
    - `can_undo`: false if images are removed.
    """

    parent: int
    way: Literal["recompute", "relearn", "rename", "patch"]
    approximation: str | None
    tasks: list[int]
    learned_again: list[int]
    classes_before: int
    classes_after: int
    operations: int
    can_undo: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedFiles(ResponseObject):
    """Digests of a task's files before and after an edit."""

    task: int
    before: FileDigests
    after: FileDigests
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedImages(ResponseObject):
    """Numbers of images that an edit relabels or removes; null while not known."""

    relabelled: int | None
    removed: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReason(ResponseObject):
    """An entry of a label table that was left out: file and line, and the reason."""

    where: str
    reason: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(ResponseObject):
    """Hardware and software that a run's numbers depend on, besides its inputs.

    - `precision`: format of forward passes in training, float32 or bfloat16.
    - `deterministic`: whether only kernels that give the same bits each time were requested.
    - `nondeterministic`: operations without such a kernel, by torch's names.
    - `devices`: kinds of devices in order, if the run was continued on another kind.
    """

    torch: str | None = None
    cpu_capability: str | None = None
    threads: int | None = None
    device: str | None = None
    precision: str | None = None
    deterministic: bool | None = None
    nondeterministic: list[str] | None = None
    devices: list[str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(ResponseObject):
    """One event of a job; ids rise. The content of `data` depends on `type`."""

    id: int
    type: Literal["state", "progress", "metric", "log", "snapshot"]
    at: str
    data: StateData | ProgressData | MetricData | LogData | SnapshotData
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(ResponseObject):
    """Request of an export job, and its result once it has succeeded.

    `version`, `format`: of the download; `sha256`, `bytes`: of its file. For ONNX: `opset`;
    `max_difference`: the largest difference of a probability between the graph in ONNX Runtime and
    the version, over `images` images of noise and `held_out_images` of its tasks, in batches of the
    sizes `batches`; `tolerance`: its limit; `exporter`: the packages that made it, with their
    versions.
    """

    version: int
    format: str
    sha256: str | None = None
    bytes: int | None = None
    opset: int | None = None
    max_difference: float | None = None
    tolerance: float | None = None
    batches: list[int] | None = None
    images: int | None = None
    held_out_images: int | None = None
    exporter: dict[str, str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem(ResponseObject):
    """One field of a request that is wrong, and why."""

    field: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class File(ResponseObject):
    """A file of a version that can be downloaded."""

    name: str
    type: str
    sha256: str
    bytes: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigests(ResponseObject):
    """Digests of a task's training and held-out images; null for a part that is not retained."""

    train: str | None
    held_out: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReason(ResponseObject):
    """A file of an uploaded archive that was left out, and why."""

    path: str
    reason: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(ResponseObject):
    """A finding about a batch's data, as a sentence for a person.

    `holds`: a job whose recipe says `"data_report": "hold"` is held because of it.
    """

    kind: Literal["balance", "conflicts", "near_duplicates", "suspects", "shift", "would_say"]
    holds: bool
    text: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingBase(ResponseObject):
    """The architecture and images that an uploaded base fits, and the query of POST /v1/bases."""

    architecture: ArchitectureChoice
    image: Image
    query: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips(ResponseObject):
    """Counts of images on which two versions differ, with statistical significance.

    - `nfr`: negative flip rate, negative / n; null without images.
    - `nfr_interval`: its 95 % interval (Wilson); null without images.
    - `mcnemar_p`: p of McNemar's exact test that `a` and `b` are equally good.
    """

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int
    nfr: float | None
    nfr_interval: list[float] | None
    mcnemar_p: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(ResponseObject):
    """Memory that a method uses while it learns, from which a job's memory is estimated.

    - `copies`: copies of the weights.
    - `copies_with`: hyper-parameter → value → copies used instead.
    - `examples`: further copies where the gradients of single images are as large as the weights.
    - `growing`: further copies for each earlier task.
    - `batches`, `images`: numbers whose activations are in memory.
    - `columns`: hyper-parameter with the number of columns of which the method stores second
      moments for each task. Its value 0 stands for the number of the network's features plus one.
      "" means that it stores none.
    """

    copies: float
    copies_with: dict[str, dict[str, float]]
    examples: float
    growing: float
    batches: float
    images: int
    columns: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(ResponseObject):
    """Predicted rise of the earlier tasks' mean loss, the measured rise, and both by task."""

    predicted: float | None
    measured: float | None
    tasks: dict[str, TaskForecast]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats(ResponseObject):
    """File formats that the service supports for uploads and downloads.

    - `uploads`: media types of batches.
    - `downloads`: values of `?format=`.
    """

    uploads: list[str]
    downloads: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(ResponseObject):
    """The limits that a version must meet before it is published; null: no limit. `GateIn` defines
    each.
    """

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None
    max_negative_flips: float | None
    min_coverage: float | None
    forgotten: float | None
    confused: float | None
    class_lost: float | None
    drifted: float | None
    learned_nothing: float | None
    features_collapsed: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck(ResponseObject):
    """Result of one check of the publication gate on a version.

    - `value`: null if the figure is undefined (the check passes) or not a finite number (it fails).
    - `limit`: null if there is no limit.

    Fields of particular checks:

    - `lost_tasks`: `value` counts the `tasks` that the version was not taught, and `classes` names
      the classes that it therefore cannot predict.
    - `parent_rolled_back`: `value` is the version's parent, `limit` the version that the lineage
      continues from.
    - `max_negative_flips`: the version was compared on `images` images with the version `against`,
      in production at that time. `negative` of them are classified correctly only by that version.
    - `forgotten`, `confused`, `class_lost`, `drifted`, `learned_nothing`: `detail` describes the
      comparison in a sentence. `positive` counts the images that only this version classifies
      correctly. `p` is that of McNemar's exact one-sided test, for the worst of several tasks times
      their number. `classes` are the worst ones, `tasks` those that drifted, and `pictures` has a
      few images of a check that failed.
    - `features_collapsed`: has `detail`, `images` and `against`, which for a failed check is the
      last good version.

    `not_measured` says why nothing was compared; then `value` is null and the check passes.
    """

    name: str
    limit: float | None
    value: float | None
    passed: bool
    tasks: list[int] | None = None
    classes: list[str] | None = None
    against: int | None = None
    negative: int | None = None
    images: int | None = None
    positive: int | None = None
    p: float | None = None
    detail: str | None = None
    not_measured: str | None = None
    pictures: list[CheckPicture] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits(ResponseObject):
    """Limits of a model's gate that a request sets; null removes a limit.

    `checks` sets those of all checks against production.
    """

    checks: Literal["on", "off"] | None = None
    max_forgetting: float | None = None
    min_new_task: float | None = None
    min_acc: float | None = None
    max_predicted_loss_rise: float | None = None
    max_negative_flips: float | None = None
    min_coverage: float | None = None
    forgotten: float | None = None
    confused: float | None = None
    class_lost: float | None = None
    drifted: float | None = None
    learned_nothing: float | None = None
    features_collapsed: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer(ResponseObject):
    """A version's predicted class for an image, and its probability in [0, 1]; null: not a finite
    number.
    """

    label: str
    probability: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint(ResponseObject):
    """A tried merge of old and new weights: the share of the new ones, and the validation accuracy."""

    weight: float
    accuracy: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadClasses(ResponseObject):
    """The classes of a task's own head, in the order of its rows."""

    task: int
    classes: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadInit(ResponseObject):
    """Recipe block for the head: how the rows of new classes are initialised."""

    init: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(ResponseObject):
    """Image settings of a model: images of `size` × `size` pixels with 1 (grey) or 3 (RGB)
    channels.

    - `crop`: share of the resized image's shorter side that the centre crop keeps, in (0, 1];
      absent: all of it up to 96 pixels, 224/256 above.
    - `interpolation`: resampling filter; absent: bilinear.
    - `decoding`: version of the conversion of files to images. 2 converts embedded colour profiles
      to sRGB; absent: 1, which ignores them.
    """

    size: int
    channels: int
    crop: float | None = None
    interpolation: Literal["bilinear", "bicubic", "nearest"] | None = None
    decoding: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageError(ResponseObject):
    """Reason why one image of a prediction request has no prediction.

    `code` is that of a problem, `/problems/<code>`.
    """

    code: str
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ResponseObject):
    """A job: `learn` learns a task, `validate` only checks a batch, `fetch` downloads a model's
    initial weights.

    `task`: null if no task is learned; `report`: the findings of a check, once the job is over;
    `outcome`: published or held, for its version; `waiting_for`: the reason why a queued job waits;
    `warnings`: tasks that its version will lack, a head that predicts worse than its features
    could, and what to do.
    """

    id: str
    kind: str
    model: str
    task: int | None
    state: str
    is_terminal: bool
    attempt: int
    progress: Progress
    error: JobError | None
    version: int | None
    outcome: str | None
    waiting_for: WaitingFor | None
    warnings: list[str]
    recipe: Recipe
    retry_of: str | None
    report: BatchCheck | ExportReport | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError(ResponseObject):
    """The reason why a job ended without success.

    - `kind`: data, code, memory, disk, time, non-finite, weights, export or lost.
    - `code`: that of a problem, or `job-<kind>`.
    """

    kind: str
    code: str
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoved(ResponseObject):
    """Data of an owner event: a job changed its state.

    - `version`: the version that it made.
    - `outcome`: whether that was published or held.
    """

    state: str
    kind: str
    task: int | None
    version: int | None
    outcome: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(ResponseObject):
    """An access key without its secret. `bound`: null unless its scope is predict."""

    id: str
    name: str
    owner: str
    scope: str
    prefix: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str
    bound: KeyBound | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBound(ResponseObject):
    """Model, alias and daily limits of an access key of scope predict.

    - `model`: current name of its model.
    - `alias`: the only alias that it may use.
    - `requests_per_s`: average, with a burst of two seconds' worth.
    - `images_per_day`: from midnight to midnight (UTC).
    - `images_today`: images sent since midnight.
    """

    model: str
    model_id: str
    alias: str
    requests_per_s: float
    images_per_day: int
    images_today: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnnProbe(ResponseObject):
    """Correct predictions of a k-nearest-neighbour classifier on the version's features, as
    [correct, total].

    - `all`, `tasks`: over all tasks, and by task.
    - `before`: of base and parent on the new task.
    """

    all: list[int]
    tasks: dict[str, list[int]]
    before: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDelivery(ResponseObject):
    """The newest attempted delivery of a webhook. `status`: HTTP status of the response; null: no
    response.
    """

    id: str
    type: str
    state: Literal["pending", "delivered", "failed"]
    status: int | None
    sent_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastJob(ResponseObject):
    """The newest job of a model, in short.

    `at`: time when it ended; if it has not, when it began, and before that when it was created.
    """

    id: str
    state: str
    at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(ResponseObject):
    """A task that a comparison of versions leaves out, and the reason.

    Reasons are that `versions` were not measured on it or have no answers, or that its images are
    deleted.
    """

    task: int
    reason: Literal["not_measured", "answers_missing", "data_deleted", "counts_only"]
    versions: list[int]
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBase(ResponseObject):
    """An uploaded base in a list, with the models that start from it."""

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: Image | None
    normalise: Normalisation | None
    classes: list[str] | None
    created_at: str
    models: list[ModelRef]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel(ResponseObject):
    """A model in a list. `summary`: null if it was not requested."""

    id: str
    name: str
    state: Literal["ready", "fetching"]
    job: str | None
    scenario: Literal["data", "task", "class"]
    problem: str
    architecture: ArchitectureChoice
    image: Image
    base: str | BaseVersion
    classes: list[str] | None
    recipe: Recipe
    gate: Gate
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
    selection: bool
    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool
    aliases: dict[str, int | None]
    line_head: int | None
    production_follows: bool
    attention: list[Attention]
    description: str | None
    tags: list[str]
    rebased_from: str | None
    created_at: str
    warnings: list[str]
    summary: ModelSummary | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogData(ResponseObject):
    """Data of a job event: a line of the job's log. `level`: info, warning or error."""

    level: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(ResponseObject):
    """One line of a job's log, with its time and level."""

    id: int
    at: str
    level: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike(ResponseObject):
    """A new class name, and the similar name (in the model or the same batch) that may be meant."""

    label: str
    like: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTask(ResponseObject):
    """A task that the production version knew before production moved, and does not know now.

    `training_data_until`: end of the time in which it can be learned again, while `can_relearn`.
    """

    task: int
    name: str | None
    classes: list[str]
    lost_classes: list[str]
    standing: str | None
    training_data_until: str | None
    can_relearn: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(ResponseObject):
    """Manifest of a version: its parts, and everything it was made from.

    Version 0 lacks some fields, and so do versions older than a field.

    - `tasks`: tasks that the version was taught, in order.
    - `problem`: what its labels mean; classification if it is missing.
    - `init`, `base`: origin of version 0.
    - `trainable`, `parameters`: numbers of parameters.
    - `steps`, `images`: numbers of the run.
    - `changes`: changes of answers by task.
    - `baseline_ncm`, `baseline_lda`: accuracy that the features allow with nearest class means and
      linear discriminants; null if held-out images are too few or are not retained.
    - `baseline_later`: task → row of a class → images of the task that the discriminants would
      classify correctly if that class and later ones were unknown.
    - `temperature`: divisor of logits.
    """

    init: RandomInit | None = None
    base: BaseOrigin | None = None
    format: int | None = None
    model: str | None = None
    name: str | None = None
    version: int | None = None
    parent: int | None = None
    task: int | None = None
    tasks: list[int] | None = None
    problem: str | None = None
    scenario: str | None = None
    architecture: ArchitectureChoice | None = None
    image: Image | None = None
    normalise: Normalisation | None = None
    classes: list[str] | None = None
    heads: list[HeadClasses] | None = None
    recipe: Recipe | None = None
    method: MethodState | None = None
    network: NetworkDescription | None = None
    datasets: Datasets | None = None
    seed: int | None = None
    threads: int | None = None
    code_version: str | None = None
    environment: Environment | None = None
    parts: list[ManifestPart] | None = None
    update_norm: UpdateNorm | None = None
    drift: float | None = None
    changes: dict[str, AnswerChanges] | None = None
    knn_probe: KnnProbe | None = None
    adp: Adp | None = None
    forecast: Forecast | None = None
    rollback: Rollback | None = None
    baseline_ncm: Baseline | None = None
    baseline_lda: Baseline | None = None
    baseline_later: dict[str, dict[str, int]] | None = None
    calibration: Calibration | None = None
    trainable: int | None = None
    parameters: int | None = None
    steps: int | None = None
    images: int | None = None
    temperature: Temperature | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPart(ResponseObject):
    """A part of the version (backbone, head …) in its manifest: a safetensors blob."""

    name: str
    type: str
    sha256: str
    bytes: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixColumn(ResponseObject):
    """Column of the accuracy matrix: a learned task with its classes and number of held-out images."""

    task: int
    name: str | None
    classes: list[str]
    n: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow(ResponseObject):
    """Row of the accuracy matrix: a version, the task that it learned and its parent; both null for
    version 0.
    """

    version: int
    task: int | None
    parent: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Me(ResponseObject):
    """The caller: key, owner, scope and limits, with facts about the service.

    - `key`: id of the key; null if the service requires none.
    - `owner`: name of the key's owner.
    - `expires_at`: null: never.
    """

    key: str | None
    owner: str
    scope: Literal["scrape", "read", "write", "admin"]
    expires_at: str | None
    limits: OwnerLimits
    service: Service
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(ResponseObject):
    """Counts behind a measured number; which fields are present depends on the number's name.

    `result`: correct predictions of a version (base, parent, new) on a task, by class [correct,
    total]; `accuracy_change`: images that the parent gets right and the new version does not, and
    vice versa; `knn_probe`, `baseline_ncm`, `baseline_lda`: correct predictions of the features;
    `loss_rise`: the forecast loss of a task, and its mean loss before and after;
    `predicted_loss_rise`: the measured rise; `adp`: the best validated state by this step;
    `rollback`: the mean over layers; `merge_weight`: the other weights that were tried.
    """

    version: str | None = None
    task: int | None = None
    correct: int | None = None
    total: int | None = None
    per_class: dict[str, list[int]] | None = None
    regressed: int | None = None
    improved: int | None = None
    predicted: float | None = None
    before: float | None = None
    after: float | None = None
    measured: float | None = None
    step: int | None = None
    best_step: int | None = None
    validation: float | None = None
    accuracy: dict[str, float] | None = None
    mean: float | None = None
    grid: list[GridPoint] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(ResponseObject):
    """Replay memory of the production version: stored images and method state; empty if there are
    none.

    `items` counts stored images. Features are not images; their part counts them.
    """

    version: int
    bytes: int
    items: int
    parts: list[PartMemory]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(ResponseObject):
    """Recipe block: after training, weights are interpolated with the initial ones, by `weight` or
    by the rule `within`; the other is null.
    """

    weight: float | None = None
    within: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(ResponseObject):
    """Catalogue entry of a learning method, with its name."""

    schema: dict[str, Any]
    defaults: dict[str, Any]
    scenario_defaults: dict[str, dict[str, Any]]
    former_defaults: dict[str, Any]
    scenarios: list[str]
    weak: dict[str, str]
    accepts: Accepts
    footprint: Footprint
    family: str
    structure: list[str]
    advice: RecipePatch
    from_random: RecipePatch
    takes: list[str]
    predicts_with: list[str]
    inference: str | None
    source: str
    description: str
    neutral: dict[str, Any] | None
    no_neutral: str | None
    no_feature_cache: str | None
    no_merge: str | None
    no_rebalance: str | None
    no_shards: str | None
    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice(ResponseObject):
    """A method's name, with its hyper-parameters beside it."""

    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodList(ResponseObject):
    """Catalogue of all learning methods, optimizers and presets.

    - `optimizers`: a sentence for each name.
    - `presets`: a recipe patch for each name.
    """

    items: list[Method]
    next_cursor: str | None
    recipe: RecipeLanguage
    optimizers: dict[str, str]
    presets: dict[str, RecipePatch]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodState(ResponseObject):
    """The learning method that made the version, with its state.

    - `state`: its numbers by type of state and name.
    - `predicts_with`: types of state that it needs for inference.
    """

    name: str | None = None
    hyper: dict[str, Any] | None = None
    state: dict[str, dict[str, Any]] | None = None
    predicts_with: list[str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricData(ResponseObject):
    """Data of a job event: a measurement during the job, as a number, its counts, or both."""

    name: str
    value: float | None
    step: int | None = None
    data: Measured | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(DataFrameResponse):
    """Response with the accuracy matrix, and figures along the ancestors of `version`; null:
    undefined.

    A row is a version, including held ones; a column is a task. `definitions` defines each figure
    of the summary by name. A window has only its rows, columns and cells, but `summary` covers
    everything. `marks` lists the cells of older versions whose labels were edited since.
    """

    version: int
    rows: list[MatrixRow]
    columns: list[MatrixColumn]
    accuracy_matrix: list[list[float | None]]
    marks: list[CellMark]
    summary: Summary
    definitions: dict[str, str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mislabelled(ResponseObject):
    """A known class whose labels in the batch look swapped or wrong.

    - `said`: the version that the job starts from predicts this class for `images` of the `of`
      training images with the label.
    - `right`: of `held_out` held-out images of the class in earlier tasks, it gets this many right.
    """

    label: str
    said: str
    images: int
    of: int
    right: int
    held_out: int
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(ResponseObject):
    """A model with its settings; `recipe` is complete.

    Look at `attention` first: it lists what waits for a person. The next task starts from version
    `line_head`. `production` names that version while `production_follows`; after a rollback it
    does not, until it is set to follow again.

    - `problem`: what it predicts for an image; fixed at creation.
    - `aliases`: versions by name.
    - `base`: `random`, `pretrained`, `perennial/…` (a packaged base), the id of an upload, or a
      version.
    - `answers`: promise for sure answers; null: no answer is marked as sure or unsure.
    - `rebased_from`: id of the model that it was made from, to move that one to another base (`GET
      …/rebase`).
    - `state`: ready, or fetching while the weights of its base are missing. While fetching, `job`
      fetches them, tasks wait, and `production`, `latest` and `line_head` are null. `job` is null
      otherwise.
    """

    id: str
    name: str
    state: Literal["ready", "fetching"]
    job: str | None
    scenario: Literal["data", "task", "class"]
    problem: str
    architecture: ArchitectureChoice
    image: Image
    base: str | BaseVersion
    classes: list[str] | None
    recipe: Recipe
    gate: Gate
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
    selection: bool
    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool
    aliases: dict[str, int | None]
    line_head: int | None
    production_follows: bool
    attention: list[Attention]
    description: str | None
    tags: list[str]
    rebased_from: str | None
    created_at: str
    warnings: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBytes(ResponseObject):
    """Bytes that a model takes in the store, by kind of data.

    They comprise parts of versions, waiting archives, retained datasets with the versions' answers
    on them, and downloads.
    """

    versions: int
    archives: int
    datasets: int
    exports: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef(ResponseObject):
    """A reference to a model: its id and name."""

    id: str
    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary(ResponseObject):
    """Overview of a model in a list: production version, accuracy and newest job.

    - `production`: number of the version in production; null: none. `acc`, `forgetting` (`GET
      …/metrics` defines them) and `bytes` refer to it; null or 0: not measured.
    - `images`: number of held-out images that `acc` rests on; null: not measured, or not stored by
      the release that published the version.
    - `acc_line`: ACC of the published versions among the newest 24, oldest first.
    - `versions`: number of versions, including version 0 and held ones.
    """

    production: int | None
    versions: int
    tasks: int
    acc: float | None
    images: int | None
    forgetting: float | None
    last_job: LastJob | None
    bytes: int
    acc_line: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage(ResponseObject):
    """Storage usage of a model. A deleted model is listed until its files are removed.

    `jobs`: number of jobs by state.
    """

    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: ModelBytes
    model: str
    name: str
    owner: str
    deleted: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel(ResponseObject):
    """One of several models that share a name, with its owner's name."""

    id: str
    owner: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Near(ResponseObject):
    """Near duplicates within a batch: the number of images that have one, and the first 20 pairs."""

    count: int
    examples: list[NearPair]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicates(ResponseObject):
    """Near duplicates of a batch's images: images that look the same although their bytes differ.

    - `within`: images that repeat an earlier one of the batch.
    - `held_out`: held-out images that are in the training part, too, equal bytes included.
    - `not_compared`: earlier tasks without hashes.
    - `complete`: whether the search could not miss any pair.
    """

    within: Near
    held_out: Near
    earlier: list[NearEarlier]
    not_compared: list[int]
    complete: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearEarlier(ResponseObject):
    """Near duplicates of the batch's images in one earlier task.

    `held_out` of them are used for training and resemble a held-out image of that task, so that the
    accuracy on it is overestimated.
    """

    task: int
    count: int
    held_out: int
    examples: list[NearPair]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPair(ResponseObject):
    """A pair of images that look the same; a path is null if it is not retained."""

    path: str | None
    like: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDescription(ResponseObject):
    """The network that a method made from the architecture, such as one with adapters or several
    experts.

    Its family determines the fields.

    - `experts`: number of experts, or their heads.
    - `prompts`: tokens of a layer.
    - `deep`: prompts in every layer.
    - `tasks`: tasks with their own prompt set.
    - `slope`, `fixed_head`, `frozen`: of a linearised network.
    - `references`: its heads with reference rows.
    - `base`: digest of the weights that it is linearised around.
    """

    family: str | None = None
    experts: int | list[int] | None = None
    prompts: int | None = None
    deep: bool | None = None
    tasks: list[int] | None = None
    slope: float | None = None
    fixed_head: bool | None = None
    frozen: bool | None = None
    references: list[str] | None = None
    base: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey(ResponseObject):
    """A new access key with its secret, which is shown only once."""

    id: str
    name: str
    owner: str
    scope: str
    prefix: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str
    bound: KeyBound | None
    secret: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook(ResponseObject):
    """A webhook with its secret, which is shown only once."""

    id: str
    owner: str
    url: str
    format: Literal["standard", "slack", "teams"]
    events: list[Literal["job.succeeded", "job.failed", "job.rejected", "job.cancelled", "version.published", "version.held", "alias.moved", "task.data_deleted", "export.ready"]]
    model: str | None
    model_name: str | None
    state: Literal["enabled", "failing", "disabled"]
    disabled_at: str | None
    disabled_because: str | None
    failing_since: str | None
    pending: int
    dropped: int
    last: LastDelivery | None
    old_secret_until: str | None
    created_at: str
    secret: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation(ResponseObject):
    """Mean and standard deviation of each channel, by which pixels in [0, 1] are standardised."""

    mean: list[float]
    std: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Olor(ResponseObject):
    """Recipe block of OLOR: after each step, weights move part of the way back to the run's initial
    weights.

    `iota_total`: the sum of the first layer's shares over a task, in place of `iota1`; null:
    `iota1` counts.
    """

    iota1: float | None = None
    iota2: float | None = None
    gamma: float | None = None
    iota_total: float | None = None
    granularity: str | None = None
    anchor: str | None = None
    anchor_old_head_rows: bool | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer(ResponseObject):
    """Recipe block of the optimizer. `lr` is the peak learning rate; `head_lr` null: the same for
    the head; `clip` bounds the gradient's norm.
    """

    name: str | None = None
    lr: float | None = None
    head_lr: float | None = None
    momentum: float | None = None
    dampening: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    warmup_steps: int | None = None
    clip: float | None = None
    carry_state: bool | None = None
    olor: Olor | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled(ResponseObject):
    """The key that put a held version in production (null: none was needed), and the reason."""

    key: str | None
    reason: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerBytes(ResponseObject):
    """Bytes that an owner takes in the store: models, uploaded bases, and uploads that no task has
    used yet.
    """

    versions: int
    archives: int
    datasets: int
    exports: int
    bases: int
    uploads: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerEvent(ResponseObject):
    """One event of an owner's models: a job, a version or an alias changed.

    Ids increase. `type` determines the fields of `data`; `model` and `job` are ids.
    """

    id: int
    type: Literal["job", "version", "alias"]
    model: str
    job: str | None
    at: str
    data: JobMoved | VersionMade | AliasMoved
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLimits(ResponseObject):
    """Request limits of one owner in each API process; null: no limit.

    - `max_body_bytes`: size of one upload.
    - `max_uploads`: simultaneous uploads.
    - `max_open_jobs`: unfinished jobs.
    - `max_owner_bytes`: bytes in the store.
    - `max_requests_per_s`: average rate of requests.
    """

    max_body_bytes: int
    max_uploads: int
    max_open_jobs: int
    max_owner_bytes: int | None
    max_requests_per_s: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerUsage(ResponseObject):
    """Storage usage of an owner. `models` counts those that are not deleted; `jobs` counts by
    state.
    """

    models: int
    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: OwnerBytes
    owner: str
    measured_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(ResponseObject):
    """A stored part of a version: name, type, digest and size.

    - `shared_with`: lowest earlier version with the same bytes.
    - `deleted_at`: time when the model's memory, and this part's bytes with it, were deleted.
    """

    name: str
    type: str
    sha256: str
    bytes: int
    shared_with: int | None
    deleted_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMemory(ResponseObject):
    """Replay memory of one type: `buffer`, `exemplars`, `features`, or `own` for the method's other
    state.

    - `bytes`: size of the part and of the packs with its images, including images that it has
      dropped.
    - `items`: number of images. For features, the images whose features this version and its
      ancestors store; null for a part without images.
    - `per_class`: sums over all tasks, by label.
    """

    type: str
    bytes: int
    items: int | None
    per_task: list[TaskMemory]
    per_class: dict[str, int]
    deleted_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(ResponseObject):
    """One measurement on a job's curves: a number, or structured data."""

    id: int
    at: str
    name: str
    step: int | None
    value: float | None
    data: Measured | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predict(DataFrameResponse):
    """Response to a prediction request: one item per image, in the order sent.

    - `answers`: threshold of sure answers, if the model promises a precision.
    - `engine`: `onnxruntime` if the version's graph predicted all images. It gives the same labels
      as the network in `torch`, and probabilities within its tolerance. null: no image could be
      used.
    """

    version: int
    task: int | None
    engine: Literal["torch", "onnxruntime"] | None
    predictions: list[Prediction | Unusable]
    answers: Sure | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(ResponseObject):
    """Prediction for one image: the most probable label, and the `top_k` most probable ones, best
    first.

    `sure`: whether the label is sure, if the model promises a precision; null: held-out images do
    not show it for any answer.
    """

    name: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    sure: bool | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAccuracy(ResponseObject):
    """Accuracy of a k-nearest-neighbour classifier on a version's features, over all tasks and by
    task.
    """

    accuracy: float | None
    per_task: list[TaskAccuracy]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(ResponseObject):
    """An error response: what is wrong and what to do about it (RFC 9457).

    Optional fields belong to particular problems.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]
    state: str | AliasState | None = None
    standing: str | None = None
    targets: list[int] | None = None
    models: list[NamedModel | ModelRef] | None = None
    training_data_deleted_at: str | None = None
    used: int | None = None
    needed: int | None = None
    limit: int | None = None
    unknown: list[str] | None = None
    classes: list[str] | None = None
    fits: FittingBase | None = None
    object: str | None = None
    task: int | None = None
    job: str | None = None
    part: str | None = None
    version: int | None = None
    request: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(ResponseObject):
    """Progress of a running job; null: not known yet.

    `done`: share of the whole job, 0 to 1, which never falls while it is learned; `left_s`: seconds
    that the whole job is expected to take from then on; `eta_s`: seconds left of the phase. `step`
    and `total_steps` are of the phase.
    """

    done: float | None = None
    left_s: float | None = None
    phase: str | None
    epoch: int | None
    step: int | None
    total_steps: int | None
    images_per_s: float | None
    eta_s: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressData(ResponseObject):
    """Data of a job event: progress of a phase. `images`: so far; `loss`: mean since the last
    report.

    `done`: share of the whole job, 0 to 1; `left_s`: seconds that it is expected to take from then
    on, null: not known. Of several reports written at once, only the last one has these two.
    """

    phase: str | None = None
    epoch: int | None = None
    step: int | None = None
    total_steps: int | None = None
    images: int | None = None
    loss: float | None = None
    done: float | None = None
    left_s: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest(ResponseObject):
    """The request that deletes what older versions still hold of images that an edit removed."""

    method: str
    path: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomInit(ResponseObject):
    """Origin of random initial weights: a pure function of architecture, image and seed."""

    kind: str
    seed: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(ResponseObject):
    """Response of the readiness probe: the state of each dependency of the service.

    A broker that is down only slows the service, and a full store still serves its objects.

    - `workers`: whether one reports, and whether one claims no jobs since it lost its device. It
      does not affect `status`.
    - `detail`: damage of a corrupt database, and what to do.
    """

    status: Literal["ready", "not ready"]
    database: Literal["up", "down", "corrupt"]
    store: Literal["up", "down", "full"]
    broker: Literal["up", "down", "none"]
    workers: Literal["up", "none", "device lost", "unknown"]
    detail: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(ResponseObject):
    """Recipe block: after training, the head alone learns from equally many images of each class;
    `lr` null: its rate.
    """

    epochs: int | None = None
    lr: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase(ResponseObject):
    """A rebase: model `new`, relearned on another base, is to replace model `old`.

    - `state`: open until production moves, then finished.
    - `ready`: every task has arrived and is measured, so that `missing` is empty.
    - `next`: what to do now.
    - `finished_at`: time when the new model took the old one's name.
    """

    state: Literal["open", "finished"]
    old: RebaseSide
    new: RebaseSide
    tasks: list[RebaseTask]
    totals: RebaseTotals
    ready: bool
    missing: list[RebaseMissing]
    next: str
    warnings: list[str]
    finished_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseMissing(ResponseObject):
    """A condition that is missing before production can move to the new model, and what to do.

    `task`: the task concerned; null: another reason.
    """

    task: int | None
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseSide(ResponseObject):
    """One of the two models in a rebase (a model relearned on another base): the old or the new
    one.

    - `version`: the version in production; null: none.
    - `deleted`: the model is deleted.
    """

    id: str
    name: str
    deleted: bool
    base: str | BaseVersion
    image: Image
    version: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseTask(ResponseObject):
    """A task of the old model's production version, with the accuracy of the old and new model on
    it.

    - `arrival`: relearned: from retained images; sent: its archive (`sha256`) is a task of the new
      model; send_again: it must be sent again, with the same `duplicates_policy`.
    - `new_task`, `standing`: its number and standing in the new model.
    - `arrived`: production of the new model was taught it.
    - `old`, `new`: correct answers of both versions in production on the same held-out images; null
      if unknown, for the reason in `detail`.
    - `flips`: image by image, `a` the old version and `b` the new one; null if answers are not
      retained for both.
    """

    task: int
    name: str | None
    classes: list[str]
    images: int
    sha256: str
    duplicates_policy: Literal["keep", "drop"]
    arrival: Literal["relearned", "sent", "send_again"]
    new_task: int | None
    standing: str | None
    arrived: bool
    old: Share | None
    new: Share | None
    flips: Flips | None
    detail: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseTotals(ResponseObject):
    """Totals of a rebase over the tasks that are compared image by image, each archive once."""

    old: Share | None
    new: Share | None
    flips: Flips
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(ResponseObject):
    """Recipe by which a task is learned; GET /v1/methods has the schema. An older recipe may lack
    newer fields.
    """

    preset: str | None = None
    method: MethodChoice | None = None
    optimizer: Optimizer | None = None
    depth: int | None = None
    head: HeadInit | None = None
    epochs: int | None = None
    batch_size: int | None = None
    sampler: str | None = None
    balanced_batches: bool | None = None
    augment: str | None = None
    validation: float | None = None
    anytime: bool | None = None
    train_ce: str | None = None
    features: str | None = None
    merge: Merge | None = None
    rebalance: Rebalance | None = None
    data_report: str | None = None
    precision: str | None = None
    deterministic: bool | None = None
    resources: Resources | None = None
    seed: int | None = None
    shards: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeLanguage(ResponseObject):
    """Fields of a recipe beside its method: JSON Schema, defaults and optional blocks.

    `olor` stands for `optimizer.olor`.
    """

    schema: dict[str, Any]
    defaults: Recipe
    olor: Olor
    merge: Merge
    rebalance: Rebalance
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePatch(ResponseObject):
    """A recipe patch; GET /v1/methods has the schemas. A string for method is its name, null resets."""

    preset: str | None = None
    method: dict[str, Any] | str | None = None
    optimizer: dict[str, Any] | None = None
    depth: int | None = None
    head: dict[str, Any] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    sampler: str | None = None
    balanced_batches: bool | None = None
    augment: str | None = None
    validation: float | None = None
    anytime: bool | None = None
    train_ce: str | None = None
    features: str | None = None
    merge: dict[str, Any] | None = None
    rebalance: dict[str, Any] | None = None
    data_report: str | None = None
    precision: str | None = None
    deterministic: bool | None = None
    resources: dict[str, Any] | None = None
    seed: int | None = None
    shards: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats(ResponseObject):
    """An existing task with the same content as the batch; submitting the batch returns that task.

    `version`: the version it made; null: none yet.
    """

    task: int
    standing: str
    version: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ResponseObject):
    """Result of `?validate=only`: findings in the archive's directory, without decoding images."""

    sha256: str
    bytes: int
    media_type: str
    layout: str
    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    notes: list[str]
    report: BatchReport
    not_checked: list[str]
    recipe: Recipe
    warnings: list[str]
    expected_s: float | None = None
    repeats: Repeats | None = None
    trials: list[TrialPlan] | None = None
    valid: bool
    checked: Literal["names and sizes"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources(ResponseObject):
    """Recipe block: the device that a job needs (any, cpu or cuda), and its minimum number of CUDA
    devices.

    `resume`: same continues an interrupted job only on the kind of device that it was begun on; any
    continues it anywhere.
    """

    device: str | None = None
    gpus: int | None = None
    resume: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(ResponseObject):
    """Sum over steps of the shares by which OLOR moved weights back: first moving layer, and mean
    of all layers.
    """

    first: float
    mean: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(ResponseObject):
    """Facts about the service: version, formats and whether it requires keys (`auth`)."""

    version: str
    formats: Formats
    auth: Literal["on", "off"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(ResponseObject):
    """Correct predictions among a number of held-out images.

    - `accuracy`: correct / total.
    - `interval`: its 95 % interval (Wilson).
    """

    correct: int
    total: int
    accuracy: float
    interval: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(ResponseObject):
    """Distribution shift: a batch's new images compared with the held-out images of earlier tasks.

    The comparison uses the features of the version that the job starts from.

    - `of`: known classes, each with as many images on both sides. Without known classes it is all
      images, which are expected to differ.
    - `mmd2`: squared maximum mean discrepancy of features.
    - `p`: probability of such a difference without a shift, in content (`p_features`) or in
      brightness and contrast (`p_light`).
    """

    of: Literal["known classes", "all images"]
    images: int
    mmd2: float
    p: float
    p_features: float
    p_light: float
    per_class: list[ClassShift]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotData(ResponseObject):
    """Data of a job event: the position of the run when its snapshot was stored."""

    stage: int | None
    epoch: int | None
    step: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(ResponseObject):
    """Entry document of the API: its paths, and other information for the first steps."""

    name: str
    version: str
    pages: str
    docs: str
    openapi: str
    health: str
    ready: str
    models: str
    methods: str
    key: str
    readme: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateData(ResponseObject):
    """Data of a job event: the job's new state, with details.

    `attempt`: the attempt that began; `reason`: why it was given back, lost or stopped; `strikes`:
    attempts lost since the last snapshot; `error`: why the job ended; `version`, `outcome`,
    `warnings`: its results; `retry_of`: the job that it follows.
    """

    state: str | None = None
    attempt: int | None = None
    reason: str | None = None
    strikes: int | None = None
    error: JobError | None = None
    version: int | None = None
    outcome: str | None = None
    warnings: list[str] | None = None
    retry_of: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReading(ResponseObject):
    """Options by which an archive is read, stored so that the job reads it as the request did.

    It has the options of the request, the labels known to the model that decided between two
    readings, and former class names that were read as present ones.
    """

    options: dict[str, str] | None = None
    known: list[str] | None = None
    former_names: dict[str, str | None] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(ResponseObject):
    """Summary figures of a version, defined in `definitions` beside it; null: undefined.

    Lists follow the version's ancestors, from the first on. `adp_mean`: for each of them by task;
    null if its job did not measure it.
    """

    acc: float | None
    pooled: float | None
    macro: float | None
    last: float | None
    by_stage: list[float | None]
    average_incremental: float | None
    bwt: float | None
    fwt: float | None
    forgetting: float | None
    forgetting_literal: float | None
    forgetting_by_stage: list[float | None]
    per_task: list[TaskForgetting]
    learning_accuracy: float | None
    intransigence: float | None
    intransigence_last: float | None
    gap_to_joint: float | None
    gap_by_stage: list[float | None] | None
    fwt_probe: float | None
    update_norm: list[float | None]
    update_norm_head: list[float | None]
    update_norm_relative: list[float | None]
    drift: list[float | None]
    baseline_ncm: list[float | None]
    baseline_lda: list[float | None]
    predicted_loss_rise: list[float | None]
    measured_loss_rise: list[float | None]
    calibration: Calibration | None
    regression_rate: float | None
    improvement_rate: float | None
    knn_probe: ProbeAccuracy | None
    sure: Sure | None
    adp_mean: list[list[TaskAccuracy] | None]
    seconds: list[float | None]
    bytes: list[int]
    degenerate: list[int]
    unmeasured_classes: list[UnmeasuredClass]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sure(ResponseObject):
    """A model's promise about its confident answers, and whether a version keeps it.

    An answer is sure if its probability is `threshold` or more.

    - `threshold`: null: no threshold keeps the promise of `precision` with 95 % confidence.
    - `images`, `covered`, `right`: held-out images, those with a sure answer, and correct ones of
      those.
    - `needed`: least number of held-out images, if all are classified correctly.
    """

    precision: float
    threshold: float | None
    images: int
    covered: int
    right: int
    needed: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect(ResponseObject):
    """A training image whose label looks wrong, and the class that it looks like.

    - `index`: position in the training part.
    - `score`: ratio of the suggested label's probability to that of the given label.
    """

    index: int
    path: str | None
    label: str
    suggested: str
    score: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(ResponseObject):
    """A task: one uploaded batch of a model, with its state and accuracy.

    - `accuracy_now`: accuracy of the newest published version; null if not measured on it.
    - `standing`: queued, running, held, learned, rolled_back, skipped, discarded, rejected, failed
      or cancelled.
    - `training_data_until`: time when its training images are deleted; null: not decided, or
      deleted (`can_relearn` says which).
    - `classes`: number of images of each label.
    """

    id: str
    number: int
    name: str | None
    sha256: str
    bytes: int
    classes: dict[str, int]
    n_train: int | None
    n_held_out: int | None
    report: BatchReport
    job: str | None
    state: str | None
    standing: str
    training_data_until: str | None
    can_relearn: bool
    recipe: Recipe | None
    version: int | None
    accuracy_when_learned: float | None
    accuracy_now: float | None
    data_deleted_at: str | None
    created_at: str
    warnings: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccuracy(ResponseObject):
    """A version's accuracy on one task's held-out images."""

    task: int
    accuracy: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFlips(ResponseObject):
    """Predictions that changed between two versions, on the held-out images of one task."""

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int
    nfr: float | None
    nfr_interval: list[float] | None
    mcnemar_p: float
    task: int
    name: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForecast(ResponseObject):
    """Predicted rise of one earlier task's mean loss, and the loss before and after."""

    predicted: float | None
    before: float
    after: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForgetting(ResponseObject):
    """Forgetting of one task: its accuracy when it was learned and now, and the difference."""

    task: int
    when_learned: float | None
    now: float | None
    forgetting: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImage(ResponseObject):
    """One image of a task: its number from 0, its label, and its path in the batch.

    `path`: null for tasks of earlier releases, and where it was deleted.
    """

    index: int
    label: str
    path: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImagePage(ResponseObject):
    """A page of a task's training or held-out images, by rising number.

    `total`: number in the whole part, or in the requested class.
    """

    items: list[TaskImage]
    total: int
    next_cursor: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMemory(ResponseObject):
    """Replay memory of one task: number of stored images or feature rows, and number per class."""

    task: int
    items: int
    per_class: dict[str, int]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(ResponseObject):
    """A version's result on one task's held-out images: the numbers of correct predictions and of
    all images.

    `per_class`: label → [correct, total].
    """

    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature(ResponseObject):
    """Temperature: the divisor of logits before the softmax that calibrates probabilities, and its
    source.

    It was fitted to `images` that were held out, or to training images that were each left out; or
    it is the parent's, or none (1).
    """

    value: float | None = None
    source: Literal["held-out", "left-out", "parent", "none"] | None = None
    images: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(ResponseObject):
    """A trial: one of several recipes that a job learns a batch with; figures are null until it is
    measured.

    `held_out`: number of held-out images that `acc` rests on; `images`: training images that its
    version keeps.
    """

    trial: int
    recipe: RecipePatch
    reason: str
    state: str
    score: TrialScore | None
    passes_gate: bool | None
    accuracy: dict[str, float | None]
    acc: float | None
    held_out: int | None
    forgetting: float | None
    forecast: float | None
    seconds: float | None
    bytes: int | None
    images: int | None
    error: JobError | None
    why_lost: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan(ResponseObject):
    """A recipe that submitting the batch would try, with the reason for it."""

    trial: int
    recipe: RecipePatch
    reason: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialScore(ResponseObject):
    """Score by which the trials of a batch are compared; `images`: number of images that it rests
    on.
    """

    source: Literal["selection", "left-out"]
    value: float
    standard_error: float
    images: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials(ResponseObject):
    """All trials of a job: the recipes that it compares for one batch.

    `chosen`: the one whose version is published; `until`: time at which the best is chosen;
    `max_seconds`: seconds of the job after which no further one begins.
    """

    job: str
    choose: Literal["best", "manual"]
    state: str
    source: Literal["selection", "left-out"]
    chosen: int | None
    best: int | None
    until: str | None
    max_seconds: float | None
    items: list[Trial]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredClass(ResponseObject):
    """UnmeasuredClass"""

    task: int
    class_: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable(ResponseObject):
    """Item for an unusable image of a prediction request; the other images still get predictions."""

    name: str | None
    error: ImageError
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateNorm(ResponseObject):
    """Euclidean norm of the change of weights from the parent; `relative`: relative to the norm
    before.
    """

    backbone: float | None
    head: float | None
    relative: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload(ResponseObject):
    """A resumable upload of which `offset` of `length` bytes have arrived. It expires at
    `expires_at`.

    `filename`: name in its Upload-Metadata; null: none.
    """

    id: str
    filename: str | None
    length: int
    offset: int
    expires_at: str
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(ResponseObject):
    """The gate's verdict on a version: passed or held, with the result of each check.

    - `overruled`: set if a person promoted the version against its checks.
    - `visible`: losses that the checks could have detected; absent if none of them compares images.
    """

    passed: bool
    checks: list[GateCheck]
    visible: Visibility | None = None
    overruled: Overruled | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(ResponseObject):
    """A version of a model: manifest, parts, gate verdict and accuracies. It never changes, except
    for its note.

    - `accuracy`: its row of the accuracy matrix: a cell for each task that some version of the
      model learned, by ascending number. `/metrics` names the columns: rejected tasks have none.
    - `tasks`: tasks that it was taught, in order.
    - `status`: published or held. A held version becomes published when a person promotes it, or
      when the failed checks of its gate are settled.
    - `note`: a person's note (`PATCH`).
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    bytes: int
    bytes_new: int
    note: str | None
    created_at: str
    tasks: list[int]
    gate: Verdict
    warnings: list[str]
    parts: list[Part]
    accuracy: list[float | None]
    manifest: Manifest
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionItem(ResponseObject):
    """A version in a list, with the fields of constant size; the version itself has all fields.

    - `passed`: verdict of its gate.
    - `mean_accuracy`: over the tasks that it was measured on; null: none.
    - `images`: number of held-out images that `mean_accuracy` rests on; null: not measured.
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    bytes: int
    bytes_new: int
    note: str | None
    created_at: str
    passed: bool
    mean_accuracy: float | None
    images: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMade(ResponseObject):
    """Data of an owner event: a version was published or held; a held one may be published later."""

    version: int
    task: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility(ResponseObject):
    """Losses that the held-out images of earlier tasks can reveal; `detail` describes them."""

    images: int
    loss: float | None
    more: int | None
    then: float | None
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor(ResponseObject):
    """Reason why a queued job does not start yet.

    `kind`: held, failed or rejected, for a task that stops the model's lineage; base, for weights
    of the model's base that are not there yet; device, for a CUDA device that no reporting worker
    has. The last two have no version and task.

    `job`: the one that fetches the weights of the base; `done`: its progress, 0 to 1; `failed`: it
    failed or was cancelled, so that nothing continues before a person acts.
    """

    kind: str
    version: int | None
    task: int | None
    detail: str
    job: str | None = None
    failed: bool | None = None
    done: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(ResponseObject):
    """A webhook (URL that receives events), without its secret.

    - `format`: standard: payloads as they are; slack, teams: messages with the same content.
    - `model`: id of the only model that it reports; null: all models.
    - `state`: failing if the last attempt failed.
    - `disabled_because`: null if a person disabled it.
    - `pending`: deliveries that wait.
    - `dropped`: events that were dropped because too many deliveries were waiting.
    - `old_secret_until`: time until which the secret before the last rotation also signs.
    """

    id: str
    owner: str
    url: str
    format: Literal["standard", "slack", "teams"]
    events: list[Literal["job.succeeded", "job.failed", "job.rejected", "job.cancelled", "version.published", "version.held", "alias.moved", "task.data_deleted", "export.ready"]]
    model: str | None
    model_name: str | None
    state: Literal["enabled", "failing", "disabled"]
    disabled_at: str | None
    disabled_because: str | None
    failing_since: str | None
    pending: int
    dropped: int
    last: LastDelivery | None
    old_secret_until: str | None
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookData(ResponseObject):
    """Data of a webhook event: ids, numbers and the gate's verdict. The type of the event
    determines the fields.

    - `model`: id of the model.
    - `name`: name of the model at the time of the event.
    - `error`: kind of a job's error.
    - `previous`: previous version of the alias; null: the alias is new.
    - `version`: null if the alias was deleted.
    - `gate`: the verdict; one of more than 16 KiB has only `passed`, without its checks.
    """

    model: str | None = None
    name: str | None = None
    job: str | None = None
    kind: str | None = None
    task: int | None = None
    version: int | None = None
    outcome: str | None = None
    error: str | None = None
    status: str | None = None
    gate: Verdict | None = None
    alias: str | None = None
    previous: int | None = None
    cause: str | None = None
    format: str | None = None
    sha256: str | None = None
    bytes: int | None = None
    webhook: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPayload(ResponseObject):
    """JSON body that is sent to a webhook; `timestamp` is the time of the event."""

    type: str
    timestamp: str
    data: WebhookData
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldSay(ResponseObject):
    """Predictions of the parent version for the images of a new class.

    - `said`: the most frequent prediction.
    - `images`: number of images with that prediction, out of `of`.
    - `surely`: those of them with a probability of `least` or more.
    """

    label: str
    said: str
    images: int
    surely: int
    of: int
    least: float
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)
