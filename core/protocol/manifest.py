"""A manifest: what a version is made of, and everything that it was made from. Immutable once stored."""

from typing import Literal

from pydantic import Field, JsonValue

from core.protocol.architecture import Architecture, Head, Image, NetworkDescription, Normalisation, Scenario
from core.protocol.document import Document, Number
from core.protocol.figures import Adp, Baseline, Calibration, Change, Forecast, KnnProbe, Rollback, UpdateNorm
from core.protocol.recipe import Recipe


class MadeBy(Document):
    """The method that made a version: its hyper-parameters, what its state has in JSON by type of part, and the types
    of state that it reads to answer.
    """

    hyper: dict[str, JsonValue] = Field(default_factory=dict)
    name: str
    predicts_with: list[str] = Field(default_factory=list)
    state: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)


class Datasets(Document):
    """sha256 of the dataset's parts; null for one that there is not."""

    train: str | None = None
    held_out: str | None = None


class Environment(Document):
    """Conditions besides its inputs that the numbers of a run depend on. Versions older than a field lack it.

    precision: format of forward passes in training, float32 or bfloat16. deterministic: whether only kernels that give
    the same bits each time were asked for; nondeterministic: operations that have none, by torch's names.
    devices: kinds of devices in their order, of a run that was continued on another kind than it was begun on.
    """

    cpu_capability: str
    device: str
    devices: list[str] | None = None
    threads: int
    torch: str
    precision: str | None = None
    deterministic: bool | None = None
    nondeterministic: list[str] = Field(default_factory=list)


STATISTICS = "statistics"
"""Type of the parts that hold sums of one task each: a version stores those of its own task alone."""
FEATURES = "features"
"""Type of the parts that hold features of one task's training images: `features.3` those that later jobs read,
`features.3.rest` the others. They go with the task's data."""
PER_TASK = (STATISTICS, FEATURES)
"""Types of which a version stores its own task's parts alone; their tensors are named `<task>.<name>`."""
TOTALS = "totals"
"""State that sums up the parts above of all tasks so far: no part of a version, see `core.work.totals`."""
REST = "rest"
"""Of a task's tensors and parts those that no later job reads: `<task>.rest.<name>`."""


class StoredPart(Document):
    """A safetensors blob of a version: its name, its type (backbone, head, buffer …), sha256 and bytes."""

    name: str
    type: str
    sha256: str
    bytes: int


class RandomStart(Document):
    """Where weights without a blob come from: `kind` is random; drawn from `seed`."""

    kind: str
    seed: int


class BaseOrigin(Document):
    """What a model began from: an uploaded base (`id`, `sha256`), another model's version (`model`,
    `version`), or pretrained weights: their `name`, where they are from (`repository`, and its commit
    `revision`, null where they were brought by hand), `licence` as their publisher names it, `sha256` and
    `bytes` of the file.
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


class Validated(Document):
    """Images of the validation part: answered rightly, and all."""

    correct: int
    total: int


class AnytimeState(Document):
    """An unfinished state of a job: how many steps it was trained for, and what it was chosen by."""

    job: str
    step: int
    validation: Validated


TemperatureSource = Literal["held-out", "left-out", "parent", "none"]


class Temperature(Document):
    """The divisor of logits that makes their softmax a probability; 1 from `source` none: nothing
    was measured.

    It was fitted to `images` that the version did not learn from: held out, or each answered by the version without
    it (left-out); or the parent's was taken (`images` null).
    """

    value: float
    source: TemperatureSource
    images: int | None = None


class Manifest(Document):
    """What a version, or an anytime state (`version` null), is made of and from.

    Version 0 has neither recipe, method nor what was measured. Figures are null here: they are rows
    (`core.db.measurements`). In the order in which they are written:

    tasks: that it was taught, in order. classes: of its one head; heads: of the task scenario. network: null for the
    architecture's own. trainable, parameters: how many numbers; steps, images: of the training.
    """

    format: int = 1
    model: str | None = None
    name: str | None = None
    version: int | None = None
    parent: int | None = None
    task: int | None = None
    tasks: list[int] = Field(default_factory=list)
    scenario: Scenario
    architecture: Architecture
    image: Image
    normalise: Normalisation | None = None
    classes: list[str] | None = None
    heads: list[Head] | None = None
    recipe: Recipe | None = None
    method: MadeBy | None = None
    datasets: Datasets | None = None
    seed: int | None = None
    threads: int | None = None
    code_version: str | None = None
    environment: Environment | None = None
    parts: list[StoredPart] = Field(default_factory=list)
    update_norm: UpdateNorm | None = None
    drift: Number | None = None
    changes: dict[str, Change] | None = None
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
    network: NetworkDescription | None = None
    init: RandomStart | None = None
    base: BaseOrigin | None = None
    anytime: AnytimeState | None = None
    temperature: Temperature | None = None

    @property
    def divisor(self) -> float:
        """Return the divisor of logits; 1 in versions from before there was a temperature."""
        return 1.0 if self.temperature is None else self.temperature.value

    def head_of(self, task: int) -> Head | None:
        """The head of a task; None where there is none."""
        return next((head for head in self.heads or [] if head.task == task), None)
