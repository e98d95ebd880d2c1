"""Manifests in responses: the stored manifest with the version's measurements."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from core.contract.responses.architecture import ArchitectureChoice, ImageOut, NormalisationOut
from core.contract.responses.catalogue import HyperParameters
from core.contract.responses.recipe import RecipeOut


class ManifestPart(TypedDict):
    """A part of the version (backbone, head …) in its manifest: a safetensors blob."""

    name: str
    type: str
    sha256: str
    bytes: int


class HeadClasses(TypedDict):
    """The classes of a task's own head, in the order of its rows."""

    task: int
    classes: list[str]


class NetworkDescription(TypedDict, total=False):
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

    family: str
    experts: int | list[int]
    prompts: int
    deep: bool
    tasks: list[int] | None
    slope: float
    fixed_head: bool
    frozen: bool
    references: list[str]
    base: str | None


class MethodState(TypedDict, total=False):
    """The learning method that made the version, with its state.

    - `state`: its numbers by type of state and name.
    - `predicts_with`: types of state that it needs for inference.
    """

    name: str
    hyper: HyperParameters
    state: dict[str, dict[str, JsonValue]]
    predicts_with: list[str]


class Datasets(TypedDict):
    """Digests of the task's training and held-out datasets."""

    train: str | None
    held_out: str | None


class Environment(TypedDict, total=False):
    """Hardware and software that a run's numbers depend on, besides its inputs.

    - `precision`: format of forward passes in training, float32 or bfloat16.
    - `deterministic`: whether only kernels that give the same bits each time were requested.
    - `nondeterministic`: operations without such a kernel, by torch's names.
    - `devices`: kinds of devices in order, if the run was continued on another kind.
    """

    torch: str
    cpu_capability: str
    threads: int
    device: str
    precision: str
    deterministic: bool
    nondeterministic: list[str]
    devices: list[str]


class RandomInit(TypedDict):
    """Origin of random initial weights: a pure function of architecture, image and seed."""

    kind: str
    seed: int


class BaseOrigin(TypedDict, total=False):
    """Origin of version 0: the base whose weights it has.

    It is an upload (id and digest), another model (id and version), or pretrained weights. Those
    have:

    - `name`: name of the weights.
    - `repository`, `revision`: origin and its commit; null: provided by a person.
    - `licence`: as the publisher names it; empty: it names none.
    - `sha256`, `bytes`: digest and size of the file.
    """

    id: str
    sha256: str
    model: str
    version: int
    name: str
    repository: str
    revision: str | None
    licence: str
    bytes: int


class TemperatureOut(TypedDict, total=False):
    """Temperature: the divisor of logits before the softmax that calibrates probabilities, and its
    source.

    It was fitted to `images` that were held out, or to training images that were each left out; or
    it is the parent's, or none (1).
    """

    value: float
    source: Literal["held-out", "left-out", "parent", "none"]
    images: int | None


class UpdateNorm(TypedDict):
    """Euclidean norm of the change of weights from the parent; `relative`: relative to the norm
    before.
    """

    backbone: float | None
    head: float | None
    relative: float | None


class AnswerChanges(TypedDict):
    """Numbers of images that only the parent or only the version classifies correctly, and of all
    images.
    """

    regressed: int
    improved: int
    total: int


class KnnProbe(TypedDict):
    """Correct predictions of a k-nearest-neighbour classifier on the version's features, as
    [correct, total].

    - `all`, `tasks`: over all tasks, and by task.
    - `before`: of base and parent on the new task.
    """

    all: list[int]
    tasks: dict[str, list[int]]
    before: dict[str, list[int]]


class Baseline(TypedDict):
    """Correct predictions of a simple classifier on the version's features, as [correct, total].

    They are five-fold over held-out images.

    - `all`, `tasks`: on all images, and by task.
    - `own`: of the version itself on the same images.
    """

    all: list[int]
    own: list[int]
    tasks: dict[str, list[int]]


class CalibrationBin(TypedDict):
    """Bin of a calibration curve: number of images, mean predicted probability, correct
    predictions.
    """

    images: int
    probability: float
    right: int


class CoveragePoint(TypedDict):
    """Point of an accuracy–coverage curve: least probability, number of images above it, and
    correct ones.
    """

    probability: float
    images: int
    right: int


class CalibrationOut(TypedDict):
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


class AdpPoint(TypedDict):
    """Point of the Anytime Deployment Performance curve: best state by `step`, its validation and
    task accuracies.
    """

    step: int
    best_step: int
    validation: float
    accuracy: dict[str, float]


class Adp(TypedDict):
    """Anytime Deployment Performance: the mean accuracy by task, and the curve over training steps."""

    mean: dict[str, float]
    curve: list[AdpPoint]


class Rollback(TypedDict):
    """Sum over steps of the shares by which OLOR moved weights back: first moving layer, and mean
    of all layers.
    """

    first: float
    mean: float


class TaskForecast(TypedDict):
    """Predicted rise of one earlier task's mean loss, and the loss before and after."""

    predicted: float | None
    before: float
    after: float


class Forecast(TypedDict):
    """Predicted rise of the earlier tasks' mean loss, the measured rise, and both by task."""

    predicted: float | None
    measured: float | None
    tasks: dict[str, TaskForecast]


class VersionZeroWeightsOrigin(TypedDict, total=False):
    """Origin of version 0's weights: random, or a base."""

    init: RandomInit | None
    base: BaseOrigin


class ManifestOut(VersionZeroWeightsOrigin, total=False):
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

    format: int
    model: str
    name: str
    version: int | None
    parent: int | None
    task: int | None
    tasks: list[int]
    problem: str
    scenario: str
    architecture: ArchitectureChoice
    image: ImageOut
    normalise: NormalisationOut | None
    classes: list[str] | None
    heads: list[HeadClasses] | None
    recipe: RecipeOut
    method: MethodState | None
    network: NetworkDescription
    datasets: Datasets
    seed: int | None
    threads: int | None
    code_version: str
    environment: Environment
    parts: list[ManifestPart]
    update_norm: UpdateNorm | None
    drift: float | None
    changes: dict[str, AnswerChanges] | None
    knn_probe: KnnProbe | None
    adp: Adp | None
    forecast: Forecast | None
    rollback: Rollback | None
    baseline_ncm: Baseline | None
    baseline_lda: Baseline | None
    baseline_later: dict[str, dict[str, int]] | None
    calibration: CalibrationOut | None
    trainable: int | None
    parameters: int | None
    steps: int | None
    images: int | None
    temperature: TemperatureOut
