"""A manifest, as answers show it: the stored one, and beside it what was measured of the version."""

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from core.protocol.answers.architecture import ArchitectureChoice, ImageOut, NormalisationOut
from core.protocol.answers.catalogue import HyperParameters
from core.protocol.answers.recipe import RecipeOut


class ManifestPart(TypedDict):
    """A safetensors blob of the version."""

    name: str
    type: str
    sha256: str
    bytes: int


class HeadClasses(TypedDict):
    """The classes of a task's own head, in the order of its rows."""

    task: int
    classes: list[str]


class NetworkDescription(TypedDict, total=False):
    """What a method made of the architecture's network; which fields are there depends on its family.

    `experts`: how many, or their heads; `prompts`: tokens of a layer; `deep`: in every layer; `tasks`: those
    with a prompt set of their own; `slope`, `fixed_head`, `frozen`: of a linearised network; `references`:
    its heads with frozen rows; `base`: digest of the weights that it is linearised around.
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
    """The method that made the version. `state`: its numbers by type of memory and name; `predicts_with`: types of
    memory that it answers with."""

    name: str
    hyper: HyperParameters
    state: dict[str, dict[str, JsonValue]]
    predicts_with: list[str]


class Datasets(TypedDict):
    """Digests of the task's training and held-out part."""

    train: str | None
    held_out: str | None


class Environment(TypedDict, total=False):
    """Conditions besides its inputs that the numbers of a run depend on.

    `precision`: of forward passes in training, float32 or bfloat16. `deterministic`: whether only kernels that
    give the same bits each time were asked for; `nondeterministic`: operations that have none, by torch's names.
    `devices`: kinds of devices in their order, of a run that was continued on another kind than it was begun on.
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
    """Random weights: a pure function of architecture, image and seed."""

    kind: str
    seed: int


class BaseOrigin(TypedDict, total=False):
    """The base that version 0 holds: an upload's id and digest, a model's id and version, or pretrained
    weights.

    Of these: `name`, `repository` and its commit `revision` (null: brought by hand), `licence` as the
    publisher names it (empty: none is named), digest and bytes.
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
    """The divisor of logits that makes their softmax a probability, and where it is from: `images` held out,
    images of the training that were each left out, the parent's, or none (1).
    """

    value: float
    source: Literal["held-out", "left-out", "parent", "none"]
    images: int | None


class UpdateNorm(TypedDict):
    """Euclidean norm of the change from the parent; `relative`: to the norm before."""

    backbone: float | None
    head: float | None
    relative: float | None


class AnswerChanges(TypedDict):
    """Images that the parent answered right and the version does not, the other way round, and all of them."""

    regressed: int
    improved: int
    total: int


class KnnProbe(TypedDict):
    """Right answers of the k-NN probe, [correct, total]: over all tasks, by task, and of base and parent on
    the new one."""

    all: list[int]
    tasks: dict[str, list[int]]
    before: dict[str, list[int]]


class Baseline(TypedDict):
    """Right answers, [correct, total], of a classifier made of the version's features, five-fold over
    held-out images: on all of them, by task, and `own`: of the version itself on the same images.
    """

    all: list[int]
    own: list[int]
    tasks: dict[str, list[int]]


class CalibrationBin(TypedDict):
    """Held-out images with neighbouring probabilities: how many, the mean probability of their answers, right ones."""

    images: int
    probability: float
    right: int


class CoveragePoint(TypedDict):
    """The surest answers on held-out images: the least probability among them, how many they are, and right ones."""

    probability: float
    images: int
    right: int


class CalibrationOut(TypedDict):
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


class AdpPoint(TypedDict):
    """The state that was the best validated by `step`: its step, validation accuracy, and accuracy by task."""

    step: int
    best_step: int
    validation: float
    accuracy: dict[str, float]


class Adp(TypedDict):
    """Anytime Deployment Performance: the mean by task, and the curve."""

    mean: dict[str, float]
    curve: list[AdpPoint]


class Rollback(TypedDict):
    """Sum of OLOR's shares over the run's steps: of the first layer that moves, and the mean over layers."""

    first: float
    mean: float


class TaskForecast(TypedDict):
    """The forecast rise of a task's mean loss, and the loss before and after."""

    predicted: float | None
    before: float
    after: float


class Forecast(TypedDict):
    """The forecast rise of the earlier tasks' mean loss, what was measured, and both by task."""

    predicted: float | None
    measured: float | None
    tasks: dict[str, TaskForecast]


class Origin(TypedDict, total=False):
    """What version 0 was made of: random weights, or a base."""

    init: RandomInit | None
    base: BaseOrigin


class ManifestOut(Origin, total=False):
    """What a version is made of, and everything that it was made from.

    Version 0 and versions from before a field lack it. `tasks`: those that the version was taught, in order; `init`,
    `base`: what version 0 was made of; `trainable`, `parameters`: numbers of the network; `steps`, `images`:
    of the run; `changes`: by task; `baseline_ncm`, `baseline_lda`: what the features could do by nearest
    class means and by linear discriminants, null where held-out images are too few or do not stay; `baseline_later`:
    task → row of a class → images of the task that the discriminants would answer rightly if that class and those after
    it were not known; `temperature`: what logits are divided by.
    """

    format: int
    model: str
    name: str
    version: int | None
    parent: int | None
    task: int | None
    tasks: list[int]
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
