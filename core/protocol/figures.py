"""What was measured of a version beside the accuracy matrix. `core.matrix.DEFINITIONS` says what each figure means."""

from pydantic import Field

from core.protocol.document import Document, Number

Counts = tuple[int, int]
"""Right answers, and of how many."""


class UpdateNorm(Document):
    """Distances from the parent, ≥ 0; `relative` to the norm before, null where that is 0."""

    backbone: Number
    head: Number | None = None
    relative: Number | None = None


class Change(Document):
    """Images that the version answers rightly and the parent did not, the other way round, and all."""

    improved: int
    regressed: int
    total: int


class KnnProbe(Document):
    """Right answers of the k-NN probe: over all tasks, by task, and of older versions on the new task."""

    all: Counts
    before: dict[str, Counts] = Field(default_factory=dict)
    tasks: dict[str, Counts]


class Baseline(Document):
    """Right answers of a classifier made of the version's features: on all images, by task, and of the
    version itself on the same images.
    """

    all: Counts
    own: Counts
    tasks: dict[str, Counts]


class Checkpoint(Document):
    """A point of the ADP curve: the state that was the best validated by `step`, and its accuracy by task."""

    accuracy: dict[str, Number]
    best_step: int
    step: int
    validation: Number


class Adp(Document):
    """Anytime Deployment Performance: the mean by task, and the curve in rising `step`."""

    mean: dict[str, Number]
    curve: list[Checkpoint]


class LossRise(Document):
    """The loss of an earlier task: the rise that was predicted, and its values before and after."""

    after: Number | None = None
    before: Number | None = None
    predicted: Number | None = None


class Forecast(Document):
    """The rise of the earlier tasks' mean loss: predicted by the method, and measured where it could be."""

    measured: Number | None = None
    predicted: Number | None = None
    tasks: dict[str, LossRise] = Field(default_factory=dict)


class Rollback(Document):
    """Sum of OLOR's shares over a task's steps, ≥ 0: of the first layer that moves, and the mean over layers."""

    first: Number
    mean: Number


class CalibrationBin(Document):
    """Held-out images with neighbouring probabilities: how many, the mean probability of their answers, right ones."""

    images: int
    probability: float
    right: int


class CoveragePoint(Document):
    """The surest answers on held-out images: the least probability among them, how many they are, and right ones."""

    probability: float
    images: int
    right: int


class Calibration(Document):
    """Calibration on held-out images, each answered with a temperature that it has no part in.

    `error`: expected calibration error without what chance adds, so around 0, also below, where nothing is off;
    `low`, `high`: its 95 % interval; `raw`: with what chance adds. `bins`: by rising probability. `curve`: from the
    surest answers on.
    """

    error: float
    low: float
    high: float
    raw: float
    images: int
    bins: list[CalibrationBin]
    curve: list[CoveragePoint] = Field(default_factory=list)


class Figures(Document):
    """All of them; null or absent where one is not known.

    `baseline_later`: task → row of the head → images of the task that `baseline_lda` answers wrongly, and rightly among
    the classes before that row: beside a version that knew these alone.
    """

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
