"""The manifest of a version: its parts and everything it was made from. Immutable once stored."""

from typing import Literal

from pydantic import Field, JsonValue

from core.contract.architecture import (
    ArchitectureWithHyperParameters,
    ImageSettings,
    NetworkFamilyDescription,
    Normalisation,
    Scenario,
    TaskHeadDescription,
)
from core.contract.document import Document, Number
from core.contract.figures import (
    AnswerChangeCounts,
    AnytimeDeploymentPerformance,
    BaselineClassifierCorrectCounts,
    Calibration,
    EarlierTasksLossRiseForecast,
    OlorPullTowardsInitialWeights,
    UpdateNorm,
    VersionFeatureKnnProbeResult,
)
from core.contract.recipe import Recipe


class ManifestMethod(Document):
    """The learning method that made a version, with its hyper-parameters and state.

    Attributes:
        hyper: hyper-parameters.
        name: name of the method.
        predicts_with: types of state that it reads for inference.
        state: its state in JSON, by type of part.
    """

    hyper: dict[str, JsonValue] = Field(default_factory=dict)
    name: str
    predicts_with: list[str] = Field(default_factory=list)
    state: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)


class DatasetDigests(Document):
    """SHA-256 digests of a task's training and held-out datasets; None for one that does not exist."""

    train: str | None = None
    held_out: str | None = None


class Environment(Document):
    """Hardware and software that a run's numbers depend on, besides its inputs.

    Versions older than a field lack it.

    Attributes:
        precision: format of forward passes in training, float32 or bfloat16.
        deterministic: whether only kernels that give the same bits each time were requested.
        nondeterministic: operations without such a kernel, by torch's names.
        devices: kinds of devices in order, if the run was continued on another kind.
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
"""Type of the parts with sums of one task. A version stores those of its own task only."""
FEATURES = "features"
"""Type of the parts with features of one task's training images.

`features.3` are those that later jobs read, `features.3.rest` the others. They are deleted with the
task's data.
"""
PER_TASK = (STATISTICS, FEATURES)
"""Types of which a version stores only its own task's parts; tensors are named `<task>.<name>`."""
TOTALS = "totals"
"""State that sums up the parts above over all tasks so far.

It is not a part of a version; see `core.execution.feature_totals`.
"""
REST = "rest"
"""Tensors and parts of a task that no later job reads: `<task>.rest.<name>`."""
ORDER = "order"
"""Tensor `<task>.rest.order`, int64 [n]: row of the dataset of each row of features, first those that
later jobs read and then the others. Parts of earlier releases lack it."""


class StoredVersionPart(Document):
    """A part of a version (backbone, head, replay buffer …), stored as a safetensors blob.

    Attributes:
        name: name of the part.
        type: backbone, head, buffer ….
        sha256: digest of the blob.
        bytes: size of the blob.
    """

    name: str
    type: str
    sha256: str
    bytes: int


class RandomWeightsOrigin(Document):
    """Origin of random initial weights: `kind` is random, and they are drawn from `seed`."""

    kind: str
    seed: int


class BaseOrigin(Document):
    """Origin of a model's base: the weights that its version 0 has.

    Attributes:
        id: an uploaded base.
        sha256: digest of its file.
        model, version: another model's version.
        name: name of pretrained weights.
        repository: origin of pretrained weights.
        revision: commit of the repository; None if a person provided the weights.
        licence: licence as the publisher names it.
        bytes: size of the file.
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


class ValidationScore(Document):
    """Score on the validation images: how many are classified correctly (or the sum of scores), of
    how many.
    """

    correct: Number
    total: int


class UnfinishedJobBestState(Document):
    """Mark of an unfinished job's best state: the number of training steps, and its validation
    score.
    """

    job: str
    step: int
    validation: ValidationScore


TemperatureSource = Literal["held-out", "left-out", "parent", "none"]


LEAST_TEMPERATURE_IMAGES = 30
"""Minimum number of images to fit a temperature to; with fewer, the next source is used."""


class Temperature(Document):
    """Temperature: the number by which logits are divided so that their softmax is a calibrated
    probability.

    `source` none means 1, because nothing was measured. Otherwise it was fitted to `images` that
    the version did not learn from: held-out ones, or images each classified without its own
    contribution (left-out). It can also be the parent's (`images` is None).
    """

    value: float
    source: TemperatureSource
    images: int | None = None


class Manifest(Document):
    """Manifest of a version or of an unfinished job's best state: its contents and its origin.

    Version 0 has no recipe, no method and no measurements. Figures are None here, because they are
    rows (`core.database.measurements`). The order of the fields is the order in which they are written.

    Attributes:
        tasks: tasks that the version was taught, in order.
        classes: classes of its one head.
        heads: heads in the task scenario.
        problem: what its labels mean; None, as in manifests without it, is classification.
        network: None for the architecture's own network.
        trainable, parameters: numbers of parameters.
        steps, images: numbers of the training.
    """

    format: int = 1
    model: str | None = None
    name: str | None = None
    version: int | None = None
    parent: int | None = None
    task: int | None = None
    tasks: list[int] = Field(default_factory=list)
    scenario: Scenario
    architecture: ArchitectureWithHyperParameters
    image: ImageSettings
    normalise: Normalisation | None = None
    classes: list[str] | None = None
    heads: list[TaskHeadDescription] | None = None
    recipe: Recipe | None = None
    method: ManifestMethod | None = None
    datasets: DatasetDigests | None = None
    seed: int | None = None
    threads: int | None = None
    code_version: str | None = None
    environment: Environment | None = None
    parts: list[StoredVersionPart] = Field(default_factory=list)
    update_norm: UpdateNorm | None = None
    drift: Number | None = None
    changes: dict[str, AnswerChangeCounts] | None = None
    knn_probe: VersionFeatureKnnProbeResult | None = None
    adp: AnytimeDeploymentPerformance | None = None
    forecast: EarlierTasksLossRiseForecast | None = None
    rollback: OlorPullTowardsInitialWeights | None = None
    baseline_ncm: BaselineClassifierCorrectCounts | None = None
    baseline_lda: BaselineClassifierCorrectCounts | None = None
    baseline_later: dict[str, dict[str, int]] | None = None
    calibration: Calibration | None = None
    trainable: int | None = None
    parameters: int | None = None
    steps: int | None = None
    images: int | None = None
    network: NetworkFamilyDescription | None = None
    init: RandomWeightsOrigin | None = None
    base: BaseOrigin | None = None
    anytime: UnfinishedJobBestState | None = None
    temperature: Temperature | None = None
    problem: str | None = None

    @property
    def logit_divisor(self) -> float:
        """Number by which a version's logits are divided before the softmax; 1 in older versions."""
        return 1.0 if self.temperature is None else self.temperature.value

    def find_head_entry(self, task: int) -> TaskHeadDescription | None:
        """Return the manifest's entry for the head of a task, or None."""
        return next((head for head in self.heads or [] if head.task == task), None)
