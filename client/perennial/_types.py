"""The answers of the API. Written by `python -m tools.client_types` from its OpenAPI document: change nothing here."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any, Literal

from perennial.shapes import Shape, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(Shape):
    """A batch that was accepted, and the job that learns it.

    `repeats`: where the model has a task of the same content. That is `task` then, and `job` the one that learns or has
    learned it; nothing was added, but for a held task that is retried with another recipe.
    `expected_s`: seconds that the job is expected to take once it begins, by the model's earlier jobs, else of one core
    by its base; null: nothing was measured.
    """

    task: Task
    job: Job
    expected_s: float | None = None
    repeats: Repeats | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts(Shape):
    """What a method can be combined with.

    `architectures`: families; null: all. `task_only`: hyper-parameters that must be off outside the task scenario;
    `refused`: by scenario, the values of hyper-parameters that do not work there; `unfit`: by family of
    architectures, values that do not work on it, by hyper-parameter; none named: the method does not.
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
class Action(Shape):
    """A request that settles something; `body` null: it is not JSON."""

    title: str
    method: str
    path: str
    body: ActionBody | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionBody(Shape):
    """The body of such a request; `…` is for a person to fill in."""

    version: int | None = None
    reason: str | None = None
    recipe: RecipePatch | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adp(Shape):
    """Anytime Deployment Performance: the mean by task, and the curve."""

    mean: dict[str, float]
    curve: list[AdpPoint]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdpPoint(Shape):
    """The state that was the best validated by `step`: its step, validation accuracy, and accuracy by task."""

    step: int
    best_step: int
    validation: float
    accuracy: dict[str, float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(Shape):
    """An alias. Of `production` also whether it follows the line, and what its move has cost."""

    name: str
    version: int
    updated_at: str
    follows: bool | None
    line_head: int | None
    lost_tasks: list[LostTask]
    warnings: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove(Shape):
    """One move of an alias; `cause` is create, publish, set, rollback or follow, `key` null for a worker."""

    id: int
    version: int
    previous: int | None
    cause: str
    key: str | None
    reason: str | None
    at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMoved(Shape):
    """An alias came to another version; `version` null: it was deleted, `previous` null: it is new.

    `cause`: create, publish, set, rollback, follow, delete or rebase: the model took the name, and so the place, of
    another one.
    """

    alias: str
    version: int | None
    previous: int | None
    cause: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasState(Shape):
    """Where an alias stands."""

    alias: str
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Shape):
    """The process answers."""

    status: Literal["ok"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChanges(Shape):
    """Images that the parent answered right and the version does not, the other way round, and all of them."""

    regressed: int
    improved: int
    total: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSetting(Shape):
    """The share of sure answers that is right, as a model promises it; between 0.5 and 1."""

    precision: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(Shape):
    """An architecture by its name."""

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
class ArchitectureChoice(Shape):
    """An architecture's name, and beside it its hyper-parameters."""

    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Shape):
    """What in a model waits for a person, in a sentence (`detail`) and the requests that settle it (one of `actions`;
    the first mends it).

    `kind`: held, rolled_back, rejected or failed, of a task; base: the weights of the model's base could not
    be brought.

    `version` is the held one, or of a task that was rolled back the one that knew it; `training_data_until`: the day on
    which it can no longer be learned again. `pictures`: of a held version, a few held-out images that production
    answers right and it answers wrong.
    """

    kind: str
    version: int | None
    task: int | None
    since: str | None
    training_data_until: str | None
    detail: str
    actions: list[Action]
    pictures: list[CheckPicture]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Shape):
    """One change; `key` null: a worker; `model`: the id of the model that it concerns, null where it concerns none."""

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
class AuditData(Shape):
    """What is kept of a change; which fields are there depends on the action.

    `retry_of`: the job that failed or whose version was held; `published`: versions that a gate let pass because of it;
    `host`: of a webhook's address; `changed`: names of its fields;
    `former_name`: of a model that took another one's name;
    `judged`: "again" where a gate let a version pass later; `left_out`: names of the fields of a change that
    is too large to be kept, which has so many `bytes`.
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
class Base(Shape):
    """An uploaded base; `image`: the images that it was uploaded for, null where that was not said; `normalise`: their
    statistics, null where those are not known (then .5 and .25 are taken).
    """

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: Image | None
    normalise: Normalisation | None
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseOrigin(Shape):
    """The base that version 0 holds: an upload's id and digest, a model's id and version, or pretrained
    weights.

    Of these: `name`, `repository` and its commit `revision` (null: brought by hand), `licence` as the
    publisher names it (empty: none is named), digest and bytes.
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
class BaseVersion(Shape):
    """Another model's version; `model` is its id or name, once stored its id."""

    model: str
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Shape):
    """Right answers, [correct, total], of a classifier made of the version's features, five-fold over
    held-out images: on all of them, by task, and `own`: of the version itself on the same images.
    """

    all: list[int]
    own: list[int]
    tasks: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheck(Shape):
    """What `?validate=full` found.

    `valid`: whether a submit would take the batch; null: the job ended before that was known, and `checked`
    says what the rest is from. `n_train`, `n_held_out`: images that would be learned and held out; `n_test`:
    of the archive's own part.
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
    valid: bool | None
    checked: Literal["names and sizes", "images"]
    n_held_out: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport(Shape):
    """What was found in a batch: after the submit by names and sizes, after the job's decoding by its images.

    Lists are bounded (1,000 rejected files and bad entries, 100 of the others), counts are whole. Tasks older than a
    field have none. `conflicts`: equal pixels under two classes; `near_conflicts`: nearly equal ones, which hold
    nothing; `conflicts_not_compared`: learned tasks that keep no digests of pixels. `settled`: findings of `data` that
    held the batch until a person learned it as it is; they hold it no more. `reading`: how the files became
    classes; `bad_entries`: of a label table, left out. `small`: images whose longer side has fewer than 48 pixels.
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
class Calibration(Shape):
    """Calibration of probabilities: `error` is the expected calibration error without what chance adds, `low` to
    `high` its 95 % interval, `raw` the error with it, over `images` held-out images in `bins` of equal numbers. The
    images that a temperature was fitted to do not judge it. `curve`: from the surest answers on, by the version's
    own temperature.
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
class CalibrationBin(Shape):
    """Held-out images with neighbouring probabilities: how many, the mean probability of their answers, right ones."""

    images: int
    probability: float
    right: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPicture(Shape):
    """A held-out image that was answered right before and is answered wrong now; `image`: its address."""

    task: int
    index: int
    label: str
    before: str
    now: str
    image: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount(Shape):
    """Images of a class; `held_out` of them are not learned from (null: not decided before the batch is decoded)."""

    images: int
    held_out: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFlips(Shape):
    """On the images of one class; `task`: whose class it is, in the task scenario, where each task has its own."""

    n: int
    both_right: int
    negative: int
    positive: int
    both_wrong: int
    label: str
    task: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassNames(Shape):
    """The batch's classes beside those that the model has (task scenario: beside each other)."""

    new: list[str]
    known: list[str]
    look_alike: list[LookAlike]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShift(Shape):
    """A class that the model knows: images compared, and the share of the new ones that lie further from the class's
    mean than 95 % of the earlier held-out ones; without a shift about 0.05.
    """

    label: str
    images: int
    earlier: int
    outside: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Table):
    """Two versions, over all tasks that both answer.

    classes: those that differ most come first, at most 1000 of `classes_total`. confusion: null beyond 200
    classes, or where tasks with classes of their own are compared together. pairs: of a class and a wrong
    answer, at most 100, those whose count differs most first. recipe, manifest: what differs alone.
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
class ComparedImage(Shape):
    """A held-out image: its task, its number there, its true label, both answers, and the path of its picture."""

    task: int
    index: int
    label: str
    a: GivenAnswer
    b: GivenAnswer
    image: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedImagePage(Shape):
    """A page of images by task and number; `total`: of all pages."""

    items: list[ComparedImage]
    total: int
    next_cursor: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedVersion(Shape):
    """One of the two versions."""

    version: int
    parent: int | None
    task: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(Shape):
    """The same image under two classes: two paths and their labels, in the same order; the second is of the batch.

    `task`: the earlier task that the first is of. `picture`: the second as a small JPEG, a data URL; of the first ten.
    """

    paths: list[str]
    labels: list[str]
    task: int | None = None
    picture: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusedPair(Shape):
    """How many images of a class got another answer, by `a` and by `b`."""

    task: int | None
    label: str
    answer: str
    a: int
    b: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion(Shape):
    """Images by true label (row) and answer (column), in the order of `labels`, of `a` and of `b`."""

    labels: list[str]
    a: list[list[int]]
    b: list[list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePoint(Shape):
    """The surest answers on held-out images: the least probability among them, how many they are, and right ones."""

    probability: float
    images: int
    right: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport(Shape):
    """What was found, as far as it was looked for. Lists are bounded, counts are whole.

    `imbalance_ratio`: images of the largest class for one of the smallest. `few`: classes with fewer than 5 images, the
    first 100. `conflicts`: images whose pixels have two classes. `shift`: null where too few images are kept to tell.
    `would_say`: of new classes, the 100 that are taken for a known one most surely, from at most 1,000 images.
    `suspects`: the 100 most suspicious of `suspects_count`, among `examined` training images. `cost_s`: seconds that
    the job took to look.
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
    findings: list[Finding] | None = None
    cost_s: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(Shape):
    """Digests of the task's training and held-out part."""

    train: str | None
    held_out: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Shape):
    """One event for one webhook. `id`: the header webhook-id; `attempts`: made so far; `next_at`: of the next
    one, null: none follows; `status`: of the last answer; `error`: why it does not count as taken.
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
class DeliveryDetail(Shape):
    """The same with what is sent, in the webhook's format. `answer`: the first 4 kB of the last answer's body;
    null for who is no administrator.
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
class Difference(Shape):
    """A value that differs, by its place such as `method.name`; null: absent."""

    path: str
    a: Any
    b: Any
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(Shape):
    """An image, and the first one with the same bytes."""

    path: str
    same_as: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReason(Shape):
    """An entry of a label table that was left out: file and line, and why."""

    where: str
    reason: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Shape):
    """Conditions besides its inputs that the numbers of a run depend on.

    `precision`: of forward passes in training, float32 or bfloat16. `deterministic`: whether only kernels that
    give the same bits each time were asked for; `nondeterministic`: operations that have none, by torch's names.
    `devices`: kinds of devices in their order, of a run that was continued on another kind than it was begun on.
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
class Event(Shape):
    """One event; ids rise. What `data` holds depends on `type`."""

    id: int
    type: Literal["state", "progress", "metric", "log", "snapshot"]
    at: str
    data: StateData | ProgressData | MetricData | LogData | SnapshotData
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Shape):
    """What a job of the kind `export` was asked for, and once it has succeeded what it made.

    `version`, `format`: of the download; `sha256`, `bytes`: of its file. Of ONNX: `opset`; `max_difference`:
    the largest difference of a probability between the graph in ONNX Runtime and the version, over `images`
    images of noise and `held_out_images` of its tasks, in batches of the sizes `batches`; `tolerance`: what
    it may be; `exporter`: the packages that made it, with their versions.
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
class FieldProblem(Shape):
    """One wrong field."""

    field: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Shape):
    """A part that can be fetched."""

    name: str
    type: str
    sha256: str
    bytes: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReason(Shape):
    """A file of the archive, and why it was left out."""

    path: str
    reason: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Shape):
    """A sentence for a person. `holds`: a job whose recipe says `"data_report": "hold"` is not learned
    because of it.
    """

    kind: Literal["balance", "conflicts", "near_duplicates", "suspects", "shift", "would_say"]
    holds: bool
    text: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingBase(Shape):
    """What an uploaded base fits: the query of POST /v1/bases, and a model's fields."""

    architecture: ArchitectureChoice
    image: Image
    query: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips(Shape):
    """With the negative flip rate `nfr` = negative / n and its 95 % interval (Wilson), null without images;
    and the p of McNemar's exact test that `a` and `b` are equally good.
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
class Footprint(Shape):
    """What a method holds at once while it learns, by which a job's memory is estimated.

    `copies`: of the weights; `copies_with`: hyper-parameter → value → copies in its place; `examples`: copies
    more where the gradients of single images are as large as the weights; `growing`: copies more for each
    earlier task; `batches`, `images`: whose activations are held; `columns`: the hyper-parameter that says of
    how many columns the method keeps second moments of each task, 0 of it for the network's features and one;
    "": it keeps none.
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
class Forecast(Shape):
    """The forecast rise of the earlier tasks' mean loss, what was measured, and both by task."""

    predicted: float | None
    measured: float | None
    tasks: dict[str, TaskForecast]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats(Shape):
    """`uploads`: media types that a batch may have; `downloads`: values of `?format=`."""

    uploads: list[str]
    downloads: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Shape):
    """A model's gate: its limits; null: not asked. GateIn says what each of them means."""

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
class GateCheck(Shape):
    """What one check found.

    `value` null: the figure is undefined (the check passes) or no finite number (it does not); `limit` null: nothing is
    asked. The check `lost_tasks` counts in `value` the `tasks` that the version was not taught, and names the `classes`
    that it therefore cannot answer. Of `parent_rolled_back` the value is the version's parent, and the limit
    the version that the line goes on from. Of `max_negative_flips` the version was compared with the version
    `against`, in production then, on so many `images`; `negative` of them that one answers right and this one
    wrong.

    The checks `forgotten`, `confused`, `class_lost`, `drifted` and `learned_nothing` add `detail`, a sentence on what
    was compared; `positive`, images that this version alone answers right; `p`, of McNemar's exact one-sided test, for
    the worst of several tasks times their number;
    `classes`, the worst ones; `tasks` that drifted; and a few `pictures` of a check that failed. `features_collapsed`
    has `detail`, `images` and `against`: of a check that failed the last good version. `not_measured`: why nothing was
    compared, in words; then `value` is null and the check passes.
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
class GateLimits(Shape):
    """The limits that a request sets; null: not asked. `checks` sets those of all checks beside production."""

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
class GivenAnswer(Shape):
    """What a version says of an image, and how probable that is to it, in [0, 1]; null: no finite number."""

    label: str
    probability: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint(Shape):
    """A weight of the trained network in a merge, and the validation accuracy with it."""

    weight: float
    accuracy: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadClasses(Shape):
    """The classes of a task's own head, in the order of its rows."""

    task: int
    classes: list[str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadInit(Shape):
    """How rows of new classes start."""

    init: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Shape):
    """Images of `size` × `size` pixels with 1 (grey) or 3 (RGB) channels.

    `crop`: share of the resized image's shorter side that the centre crop keeps, in (0, 1]; absent: all of it up to 96
    pixels, 224/256 above. `interpolation`: how images are resized; absent: bilinear. `decoding`: number of the
    way in which files become images: 2 turns embedded colour profiles to sRGB; absent: 1, which leaves them aside.
    """

    size: int
    channels: int
    crop: float | None = None
    interpolation: Literal["bilinear", "bicubic", "nearest"] | None = None
    decoding: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageError(Shape):
    """Why an image has no prediction: `code` is that of a problem, `/problems/<code>`."""

    code: str
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Shape):
    """A piece of long work. Of the kind `learn`: of learning one task; `validate`: a batch that is only
    checked; `fetch`: weights that a model begins with.

    `task`: null where no task is learned; `report`: what a check found, once the job is over;
    `outcome`: whether its version was published or is held; `waiting_for`: what keeps a queued job from its turn;
    `warnings`: tasks that its version will lack, a head that answers worse than its features could, and what
    to do.
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
class JobError(Shape):
    """Why a job ended without its work done.

    `kind`: data, code, memory, disk, time, non-finite, weights, export or lost; `code`: that of a problem, or
    `job-<kind>`.
    """

    kind: str
    code: str
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoved(Shape):
    """A job came into another state. `version`, `outcome`: what it made, and whether that was published or held."""

    state: str
    kind: str
    task: int | None
    version: int | None
    outcome: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Shape):
    """A key, without its secret. `bound`: null unless its scope is predict."""

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
class KeyBound(Shape):
    """Limits of a key of scope predict: what it may ask, and how often.

    `model`: its present name; `alias`: the only one that is answered; `requests_per_s`: on average, with those of two
    seconds at once; `images_per_day`: from midnight to midnight (UTC); `images_today`: sent since midnight.
    """

    model: str
    model_id: str
    alias: str
    requests_per_s: float
    images_per_day: int
    images_today: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnnProbe(Shape):
    """Right answers of the k-NN probe, [correct, total]: over all tasks, by task, and of base and parent on
    the new one.
    """

    all: list[int]
    tasks: dict[str, list[int]]
    before: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDelivery(Shape):
    """The newest delivery that was tried. `status`: of the answer, null where none came."""

    id: str
    type: str
    state: Literal["pending", "delivered", "failed"]
    status: int | None
    sent_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastJob(Shape):
    """The newest job of a model. `at`: when it ended; of one that is not over when it began, else when it was made."""

    id: str
    state: str
    at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Shape):
    """A task that is not compared, and why: `versions` were not measured on it, have no answers, or its
    images are gone.
    """

    task: int
    reason: Literal["not_measured", "answers_missing", "data_deleted", "counts_only"]
    versions: list[int]
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBase(Shape):
    """A base in a list, with the models that begin with it."""

    id: str
    sha256: str
    bytes: int
    architecture: ArchitectureChoice
    image: Image | None
    normalise: Normalisation | None
    created_at: str
    models: list[ModelRef]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel(Shape):
    """A model in a list. `summary`: null where it is not asked for."""

    id: str
    name: str
    state: Literal["ready", "fetching"]
    job: str | None
    scenario: Literal["data", "task", "class"]
    architecture: ArchitectureChoice
    image: Image
    base: str | BaseVersion
    classes: list[str] | None
    recipe: Recipe
    gate: Gate
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
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
class LogData(Shape):
    """A line of the log. `level`: info, warning or error."""

    level: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Shape):
    """One line of a job's log."""

    id: int
    at: str
    level: str
    message: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike(Shape):
    """A new class, and the one that it looks like: known to the model, or in the same batch."""

    label: str
    like: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTask(Shape):
    """A task that production was taught before a move of it and is not now.

    `training_data_until`: until when it can be learned again, while `can_relearn`.
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
class Manifest(Shape):
    """What a version is made of, and everything that it was made from.

    Version 0 and versions from before a field lack it. `tasks`: those that the version was taught, in order; `init`,
    `base`: what version 0 was made of; `trainable`, `parameters`: numbers of the network; `steps`, `images`:
    of the run; `changes`: by task; `baseline_ncm`, `baseline_lda`: what the features could do by nearest
    class means and by linear discriminants, null where held-out images are too few or do not stay; `baseline_later`:
    task → row of a class → images of the task that the discriminants would answer rightly if that class and those after
    it were not known; `temperature`: what logits are divided by.
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
class ManifestPart(Shape):
    """A safetensors blob of the version."""

    name: str
    type: str
    sha256: str
    bytes: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixColumn(Shape):
    """A learned task: its name, classes, and how many held-out images it has."""

    task: int
    name: str | None
    classes: list[str]
    n: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow(Shape):
    """A version: the task that it learned and its parent; null of version 0."""

    version: int
    task: int | None
    parent: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Me(Shape):
    """The caller. `key`: id of the key, null where the service asks for none; `owner`: name of the owner that
    it belongs to; `expires_at`: null: never.
    """

    key: str | None
    owner: str
    scope: Literal["scrape", "read", "write", "admin"]
    expires_at: str | None
    limits: OwnerLimits
    service: Service
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Shape):
    """What was counted beside the number of a measurement; which of it is there depends on its name.

    `result`: right answers of a version (base, parent, new) on a task, by class [correct, total]; `accuracy_change`:
    images that the parent answered right and the new version does not, and the other way round; `knn_probe`,
    `baseline_ncm`, `baseline_lda`: right answers of the features; `loss_rise`: what a task was forecast to
    lose, and its mean loss before and after; `predicted_loss_rise`: the rise that was measured; `adp`: the
    state that was the best validated by this step; `rollback`: the mean over layers; `merge_weight`: what
    else was tried.
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
class Memory(Shape):
    """The memory of the version that `production` names; empty where the method keeps none.

    `items` counts stored images; features are no images, and their part counts them.
    """

    version: int
    bytes: int
    items: int
    parts: list[PartMemory]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Shape):
    """After training, a straight line back to the weights of the start: how far, or by which rule; the other
    is null.
    """

    weight: float | None = None
    within: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Shape):
    """A method by its name."""

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
class MethodChoice(Shape):
    """A method's name, and beside it its hyper-parameters."""

    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodList(Shape):
    """All methods, and what else a recipe may say: optimizers by name in a sentence, presets by name as patches."""

    items: list[Method]
    next_cursor: str | None
    recipe: RecipeLanguage
    optimizers: dict[str, str]
    presets: dict[str, RecipePatch]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodState(Shape):
    """The method that made the version. `state`: its numbers by type of memory and name; `predicts_with`: types of
    memory that it answers with.
    """

    name: str | None = None
    hyper: dict[str, Any] | None = None
    state: dict[str, dict[str, Any]] | None = None
    predicts_with: list[str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricData(Shape):
    """A measurement while learning: a number, what was counted beside it, or both."""

    name: str
    value: float | None
    step: int | None = None
    data: Measured | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Table):
    """The accuracy matrix, and figures along the ancestors of `version`; undefined is null.

    A row is a version, held ones among them; a column a task. `definitions`: what each figure of the summary
    is, by name. In a window only its rows, columns and cells are there; `summary` is of all.
    """

    version: int
    rows: list[MatrixRow]
    columns: list[MatrixColumn]
    accuracy_matrix: list[list[float | None]]
    summary: Summary
    definitions: dict[str, str]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Shape):
    """A model; `recipe` is shown resolved.

    Look at `attention` first: what waits for a person is there. The next task starts from version `line_head`, which
    `production` names while `production_follows`; after a rollback it does not until it is told to. `aliases`: their
    versions by name. `base`: `random`, `pretrained`, `perennial/…` (a base of the package), the id of an
    upload, or a version.

    `answers`: what is promised of sure answers; null: none is called sure or not.

    `rebased_from`: the id of the model that it was made from, to move that one to another base (`GET …/rebase`).

    `state`: ready, or fetching while the weights of its base are not there: `job` brings them, tasks wait,
    and `production`, `latest` and `line_head` are null. `job` is null once they are there.
    """

    id: str
    name: str
    state: Literal["ready", "fetching"]
    job: str | None
    scenario: Literal["data", "task", "class"]
    architecture: ArchitectureChoice
    image: Image
    base: str | BaseVersion
    classes: list[str] | None
    recipe: Recipe
    gate: Gate
    answers: AnswersSetting | None
    keep_training_data: bool
    held_out: str
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
class ModelBytes(Shape):
    """Bytes in the store: parts of versions, archives that wait, kept datasets with what versions answered on them, and
    downloads that were made.
    """

    versions: int
    archives: int
    datasets: int
    exports: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef(Shape):
    """A model by id and name."""

    id: str
    name: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary(Shape):
    """What a list shows of a model at a glance.

    `production`: number of the version in production, whose ACC and forgetting (`GET …/metrics` defines them) and bytes
    these are; null or 0: there is none, or it was not measured. `acc_line`: ACC of the published ones of the newest 24
    versions, oldest first. `versions` counts version 0 too, and held ones.
    """

    production: int | None
    versions: int
    tasks: int
    acc: float | None
    forgetting: float | None
    last_job: LastJob | None
    bytes: int
    acc_line: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage(Shape):
    """What a model has; a deleted one is listed until its files are swept. `jobs`: how many, by state."""

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
class NamedModel(Shape):
    """One of several models of a name, with its owner's name."""

    id: str
    owner: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Near(Shape):
    """Images with a near duplicate: how many, and the first 20."""

    count: int
    examples: list[NearPair]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicates(Shape):
    """Images that look the same though their bytes differ.

    `within`: images that repeat an earlier one of the batch. `held_out`: held-out images that are in the training part
    too, equal bytes included. `not_compared`: earlier tasks without hashes. `complete`: whether no pair was missed.
    """

    within: Near
    held_out: Near
    earlier: list[NearEarlier]
    not_compared: list[int]
    complete: bool
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearEarlier(Shape):
    """Images of the batch with a near duplicate in an earlier task.

    `held_out` of them are learned from and resemble a held-out image of that task: its accuracy is flattered.
    """

    task: int
    count: int
    held_out: int
    examples: list[NearPair]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPair(Shape):
    """An image, and one that looks the same; null: its path is not kept."""

    path: str | None
    like: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDescription(Shape):
    """What a method made of the architecture's network; which fields are there depends on its family.

    `experts`: how many, or their heads; `prompts`: tokens of a layer; `deep`: in every layer; `tasks`: those
    with a prompt set of their own; `slope`, `fixed_head`, `frozen`: of a linearised network; `references`:
    its heads with frozen rows; `base`: digest of the weights that it is linearised around.
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
class NewKey(Shape):
    """A key with its secret, shown this once."""

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
class NewWebhook(Shape):
    """A webhook with its secret, shown this once."""

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
class Normalisation(Shape):
    """Statistics of pixels in [0, 1], one number per channel, by which a network's inputs are standardised."""

    mean: list[float]
    std: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Olor(Shape):
    """After each step, a share of the way back to the weights that the run started from.

    `iota_total`: the sum of the first layer's shares over a task, in place of `iota1`; null: `iota1` counts.
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
class Optimizer(Shape):
    """`lr` is the peak rate; `head_lr` null: the same for the head. `clip` bounds the gradient's norm."""

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
class Overruled(Shape):
    """The key that put a held version in production (null: none was needed), and why."""

    key: str | None
    reason: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerBytes(Shape):
    """Sums over an owner's models, his uploaded bases, and his uploads that no task has taken yet."""

    versions: int
    archives: int
    datasets: int
    exports: int
    bases: int
    uploads: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerEvent(Shape):
    """One event; ids rise. What `data` holds depends on `type`; `model`, `job`: their ids."""

    id: int
    type: Literal["job", "version", "alias"]
    model: str
    job: str | None
    at: str
    data: JobMoved | VersionMade | AliasMoved
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLimits(Shape):
    """What one owner may do, in each API process; null: no limit.

    `max_body_bytes`: of one upload; `max_uploads`: under way at once; `max_open_jobs`: that are not over;
    `max_owner_bytes`: in the store; `max_requests_per_s`: on average.
    """

    max_body_bytes: int
    max_uploads: int
    max_open_jobs: int
    max_owner_bytes: int | None
    max_requests_per_s: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerUsage(Shape):
    """What an owner has. `models` counts those that are not deleted; `jobs`: how many, by state."""

    models: int
    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: OwnerBytes
    owner: str
    measured_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Shape):
    """One stored part; `shared_with` is the lowest earlier version that holds the same bytes.

    `deleted_at`: when the memory of the model was deleted, and this part's bytes with it.
    """

    name: str
    type: str
    sha256: str
    bytes: int
    shared_with: int | None
    deleted_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMemory(Shape):
    """One type of part: `buffer`, `exemplars`, `features`, or `own` for what else the method keeps.

    `bytes` counts the part and the packs that hold its images, also images that it has given up. `items` counts images,
    or the images whose features are kept by this version and those that it was learned from; null for a part that holds
    none. `per_class` adds up all tasks, by label.
    """

    type: str
    bytes: int
    items: int | None
    per_task: list[TaskMemory]
    per_class: dict[str, int]
    deleted_at: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Shape):
    """One measurement while learning: a number, or structured data."""

    id: int
    at: str
    name: str
    step: int | None
    value: float | None
    data: Measured | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predict(Table):
    """One item per image, in the order sent. `answers`: when one is sure, where the model says that.

    `engine`: `onnxruntime` where all images were answered by the version's graph, which gives the same labels as its
    network in `torch`, and probabilities within its tolerance. null: no image could be used.
    """

    version: int
    task: int | None
    engine: Literal["torch", "onnxruntime"] | None
    predictions: list[Prediction | Unusable]
    answers: Sure | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Shape):
    """The most probable label of one image, and the `top_k` most probable ones, the greatest first.

    `sure`: whether the label is sure, where the model says when one is; null: the held-out images show it of
    none.
    """

    name: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    sure: bool | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAccuracy(Shape):
    """The k-NN probe: over all tasks together, and by task."""

    accuracy: float | None
    per_task: list[TaskAccuracy]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Shape):
    """What went wrong and what to do (RFC 9457); what is not required belongs to single kinds of problems."""

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
class Progress(Shape):
    """Where a job is; null: not known yet.

    `done`: share of the whole job, 0 to 1, which never falls while it is learned; `left_s`: seconds that the whole
    job is expected to take from then on; `eta_s`: seconds left of the phase. `step` and `total_steps` are of the phase.
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
class ProgressData(Shape):
    """How far a phase is. `images`: so far; `loss`: mean since the last report.

    `done`: share of the whole job, 0 to 1; `left_s`: seconds that it is expected to take from then on, null: not known.
    Of several reports that were written at once the last one has the two.
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
class RandomInit(Shape):
    """Random weights: a pure function of architecture, image and seed."""

    kind: str
    seed: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Shape):
    """What the service needs. A dead broker only slows it down; a full store still serves what it holds.

    `workers`, which do not count either: whether one reports, and whether one claims no jobs since it lost its device.
    `detail`: what is damaged of a corrupt database, and what to do.
    """

    status: Literal["ready", "not ready"]
    database: Literal["up", "down", "corrupt"]
    store: Literal["up", "down", "full"]
    broker: Literal["up", "down", "none"]
    workers: Literal["up", "none", "device lost", "unknown"]
    detail: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(Shape):
    """After training, the head alone learns from as many images of each class; `lr` null: at the head's rate."""

    epochs: int | None = None
    lr: float | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase(Shape):
    """A rebase: `old` is what `new` is to replace.

    `state`: open until production moves, then finished. `ready`: every task has arrived and is measured, so that
    `missing` is empty. `next`: what to do now. `finished_at`: when the new model took the old one's name.
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
class RebaseMissing(Shape):
    """Something that is missing before production can move: a task (null: another reason), and what to do."""

    task: int | None
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseSide(Shape):
    """One of the two models; `version` is in production, null where there is none. `deleted`: it is gone."""

    id: str
    name: str
    deleted: bool
    base: str | BaseVersion
    image: Image
    version: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseTask(Shape):
    """A task that production of the old model was taught.

    `arrival`: relearned from images that are kept; sent, where its archive (`sha256`) is a task of the new model;
    send_again, where it must be sent, with equal images treated by `duplicates_policy` as before. `new_task` is its
    number there, and `standing` where that task stands. It is `arrived` when production of the new model was taught it.

    `old`, `new`: right answers of both versions in production on the same held-out images; null where that cannot be
    said, `detail` says why. `flips`: image by image, `a` the old version and `b` the new one; null where answers are
    not kept for both.
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
class RebaseTotals(Shape):
    """Over the tasks that are compared image by image: each archive once."""

    old: Share | None
    new: Share | None
    flips: Flips
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Shape):
    """How a task is learned; GET /v1/methods has the schema. A recipe from before a field lacks it."""

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
class RecipeLanguage(Shape):
    """What surrounds a method in a recipe: its JSON Schema, what an empty patch means, and blocks left open.

    `olor` stands for `optimizer.olor`.
    """

    schema: dict[str, Any]
    defaults: Recipe
    olor: Olor
    merge: Merge
    rebalance: Rebalance
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePatch(Shape):
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
class Repeats(Shape):
    """The task that a batch repeats: it is queued, running, learned or held, and a submit answers with it.

    `version`: that it made; null: none yet.
    """

    task: int
    standing: str
    version: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Shape):
    """What `?validate=only` found in the archive's directory."""

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
    valid: bool
    checked: Literal["names and sizes"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources(Shape):
    """Where the job may run: device any, cpu or cuda, and CUDA devices at least. `resume`: same continues an
    interrupted job only on the kind of device that it was begun on; any continues it anywhere.
    """

    device: str | None = None
    gpus: int | None = None
    resume: str | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Shape):
    """Sum of OLOR's shares over the run's steps: of the first layer that moves, and the mean over layers."""

    first: float
    mean: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Shape):
    """The service. `auth`: whether it asks for keys."""

    version: str
    formats: Formats
    auth: Literal["on", "off"]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Shape):
    """Right answers among held-out images: `accuracy` = correct / total with its 95 % interval (Wilson)."""

    correct: int
    total: int
    accuracy: float
    interval: list[float]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Shape):
    """New images beside kept held-out images of earlier tasks, by the features of the version that the job starts from.

    `of`: known classes, each with as many images on both sides; or all images, where no class is known: then other
    images are expected. `mmd2`: squared maximum mean discrepancy of features; `p`: how probable as much
    difference is without a shift, in what images show (`p_features`) or in their brightness and contrast
    (`p_light`).
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
class SnapshotData(Shape):
    """Where the run was when its snapshot was stored."""

    stage: int | None
    epoch: int | None
    step: int | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Shape):
    """Where to go: paths of this service, and what else is needed at first."""

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
class StateData(Shape):
    """A change of state, with what is known of it.

    `attempt`: which one began; `reason`: why it was given back, lost or stopped; `strikes`: attempts that
    were lost since the last snapshot; `error`: why the job ended; `version`, `outcome`, `warnings`: what it
    made; `retry_of`: the job that it follows.
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
class StoredReading(Shape):
    """Way to read a batch, so that its job reads it as the submit did: options of the request, and the labels known to
    the model that decided between two readings.
    """

    options: dict[str, str] | None = None
    known: list[str] | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Shape):
    """The figures of a version; `definitions` beside it says what each of them is. Undefined is null.

    Lists go along the version's ancestors, from the first on. `adp_mean`: of each of them by task; null where
    its job did not measure it.
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
class Sure(Shape):
    """The promise of a model, and how a version keeps it.

    An answer whose probability is `threshold` or more is sure; null: no threshold keeps the promise of `precision`
    with 95 % confidence. Of `images` held out, `covered` are answered surely, `right` of them rightly. `needed`:
    images that must be held out at least, if all are answered rightly.
    """

    precision: float
    threshold: float | None
    images: int
    covered: int
    right: int
    needed: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect(Shape):
    """A training image whose label looks wrong: `index` in the training part, and how many times less
    probable the given label is than the suggested one.
    """

    index: int
    path: str | None
    label: str
    suggested: str
    score: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Shape):
    """One uploaded batch. `accuracy_now` is that of the newest published version, null if not measured on it.

    `standing`: queued, running, held, learned, rolled_back, skipped, discarded, rejected, failed or cancelled.
    `training_data_until`: when its training images go; null: not decided, or gone (`can_relearn` says which).
    `classes`: how many images each label has.
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
class TaskAccuracy(Shape):
    """An accuracy on a task's held-out part."""

    task: int
    accuracy: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFlips(Shape):
    """On the held-out images of one task."""

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
class TaskForecast(Shape):
    """The forecast rise of a task's mean loss, and the loss before and after."""

    predicted: float | None
    before: float
    after: float
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForgetting(Shape):
    """A task's accuracy when it was learned and now, and its forgetting."""

    task: int
    when_learned: float | None
    now: float | None
    forgetting: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImage(Shape):
    """One image of a part: its number there, from 0, and its label."""

    index: int
    label: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImagePage(Shape):
    """A page of the images of one part, by rising number; `total`: of the whole part, or of the class that
    was asked for.
    """

    items: list[TaskImage]
    total: int
    next_cursor: str | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMemory(Shape):
    """Stored images, or rows of features, of one task, and how many of each class."""

    task: int
    items: int
    per_class: dict[str, int]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(Shape):
    """How a version answers the held-out images of one task: right answers, images, and both by label
    [correct, total].
    """

    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature(Shape):
    """The divisor of logits that makes their softmax a probability, and where it is from: `images` held out,
    images of the training that were each left out, the parent's, or none (1).
    """

    value: float | None = None
    source: Literal["held-out", "left-out", "parent", "none"] | None = None
    images: int | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredClass(Shape):
    """UnmeasuredClass"""

    task: int
    class_: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable(Shape):
    """An image that cannot be used; the others of its request are answered all the same."""

    name: str | None
    error: ImageError
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateNorm(Shape):
    """Euclidean norm of the change from the parent; `relative`: to the norm before."""

    backbone: float | None
    head: float | None
    relative: float | None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload(Shape):
    """An upload that has begun: `offset` of its `length` bytes are here, and it is removed at `expires_at`.

    `filename`: as its Upload-Metadata names it; null: it names none.
    """

    id: str
    filename: str | None
    length: int
    offset: int
    expires_at: str
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Shape):
    """The judgement of a version by its gate; `overruled` where a person promoted it against its checks.

    `visible`: the losses that the checks could have seen; absent where none of them compares images.
    """

    passed: bool
    checks: list[GateCheck]
    visible: Visibility | None = None
    overruled: Overruled | None = None
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Shape):
    """An immutable version; `accuracy` is its row of the accuracy matrix, `tasks` are those that it was
    taught, in order.

    `status` is published or held: a held one becomes published when a person promotes it, or when what its gate missed
    is settled. `note`: what a person wrote of it (`PATCH`).
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    tasks: list[int]
    status: str
    gate: Verdict
    warnings: list[str]
    parts: list[Part]
    bytes: int
    bytes_new: int
    accuracy: list[float | None]
    manifest: Manifest
    note: str | None
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionItem(Shape):
    """A version in a list: what is as long for the last one as for the first. The version itself has the rest.

    `passed`: its gate. `mean_accuracy`: over the tasks that it was measured on; null: on none.
    """

    id: str
    number: int
    parent: int | None
    task: int | None
    job: str | None
    status: str
    passed: bool
    mean_accuracy: float | None
    bytes: int
    bytes_new: int
    note: str | None
    created_at: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMade(Shape):
    """A version was published or held; one that was held may be published later."""

    version: int
    task: int | None
    status: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility(Shape):
    """Losses that the held-out images of earlier tasks can show; `detail` says so in a sentence."""

    images: int
    loss: float | None
    more: int | None
    then: float | None
    detail: str
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor(Shape):
    """What keeps the job: a task that stops the line of its model (`kind`: held, failed or rejected), the model's
    base, whose weights are not there yet (base), or a CUDA device, which no worker has that reports (device); the two
    without version and task.

    `job`: the one that brings the weights of the base; `done`: how far it is, 0 to 1; `failed`: whether it failed or
    was cancelled, so that nothing goes on before a person acts.
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
class Webhook(Shape):
    """A webhook, without its secret.

    `format`: standard: payloads as they are; slack, teams: messages that say the same. `model`: the id of the
    only one that it is told of, null: all; `state`: failing where the last attempt failed;
    `disabled_because`: null where a person did it; `pending`: deliveries that wait; `dropped`: events that
    found no room beside so many that wait; `old_secret_until`: the secret from before the last rotation signs
    too until then.
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
class WebhookData(Shape):
    """Ids, numbers and the gate's verdict; which fields are there depends on the type.

    `model`: its id, `name`: its name when it happened; `error`: the kind of a job's error; `previous`: where
    the alias was, null: it is new; `version` null: the alias was deleted; `gate`: of more than 16 KiB only
    `passed`, without its checks.
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
class WebhookPayload(Shape):
    """The body of a delivery; `timestamp`: when it happened."""

    type: str
    timestamp: str
    data: WebhookData
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldSay(Shape):
    """Images of a new class as the version answers them that the job starts from: `images` of `of` are called `said`,
    more than anything else; `surely` of them with the probability `least` or more.
    """

    label: str
    said: str
    images: int
    surely: int
    of: int
    least: float
    version: int
    extra: dict[str, Any] = _field(default_factory=dict, repr=False)
