"""Measurements of a version beside the accuracy matrix; `core.statistics.matrix.DEFINITIONS` defines them."""

from pydantic import Field

from core.contract.document import Document, Number

Counts = tuple[int, int]
"""Correct answers, and the number of images."""


class UpdateNorm(Document):
    """Distance of a version's weights from those of its parent, per part of the network, ≥ 0.

    Attributes:
        backbone, head: Euclidean norms of the change.
        relative: change relative to the norm before; None if that norm is 0.
    """

    backbone: Number
    head: Number | None = None
    relative: Number | None = None


class AnswerChangeCounts(Document):
    """Numbers of held-out images whose prediction became right or wrong from the parent to the
    version.

    Attributes:
        improved: images that only the version classifies correctly.
        regressed: images that only the parent classifies correctly.
        total: all images.
    """

    improved: int
    regressed: int
    total: int


class VersionFeatureKnnProbeResult(Document):
    """Correct predictions of a k-nearest-neighbour classifier on a version's features.

    Attributes:
        all: over all tasks.
        before: of older versions on the new task.
        tasks: by task.
    """

    all: Counts
    before: dict[str, Counts] = Field(default_factory=dict)
    tasks: dict[str, Counts]


class BaselineClassifierCorrectCounts(Document):
    """Correct predictions of a simple classifier on a version's features, for comparison with its
    head.

    Attributes:
        all: on all images.
        own: of the version itself on the same images.
        tasks: by task.
    """

    all: Counts
    own: Counts
    tasks: dict[str, Counts]


class AnytimeDeploymentCurvePoint(Document):
    """A point of the curve of Anytime Deployment Performance: the best state by one training step.

    Attributes:
        accuracy: accuracy by task of the state that was the best validated by `step`.
        best_step: step of that state.
        step: step of the point.
        validation: validation accuracy of that state.
    """

    accuracy: dict[str, Number]
    best_step: int
    step: int
    validation: Number


class AnytimeDeploymentPerformance(Document):
    """Anytime Deployment Performance: the mean accuracy of the best states during training.

    Attributes:
        mean: mean by task.
        curve: points in rising order of `step`.
    """

    mean: dict[str, Number]
    curve: list[AnytimeDeploymentCurvePoint]


class EarlierTaskLossRise(Document):
    """The predicted rise of an earlier task's loss, and the loss before and after learning."""

    after: Number | None = None
    before: Number | None = None
    predicted: Number | None = None


class EarlierTasksLossRiseForecast(Document):
    """The predicted rise of the earlier tasks' mean loss, caused by learning a new task.

    Attributes:
        measured: rise on held-out images, where it could be measured.
        predicted: rise predicted by the method.
        tasks: losses by task.
    """

    measured: Number | None = None
    predicted: Number | None = None
    tasks: dict[str, EarlierTaskLossRise] = Field(default_factory=dict)


class OlorPullTowardsInitialWeights(Document):
    """Sum, over a task's steps, of the shares by which the optimizer OLOR moves weights back, ≥ 0.

    Attributes:
        first: of the first layer that moves.
        mean: mean over layers.
    """

    first: Number
    mean: Number


class CalibrationBin(Document):
    """Bin of a calibration curve: held-out images with similar predicted probabilities.

    Attributes:
        images: number of images.
        probability: mean probability of their answers.
        right: number of correct answers.
    """

    images: int
    probability: float
    right: int


class CoveragePoint(Document):
    """Point of an accuracy–coverage curve: the most confident predictions on held-out images.

    Attributes:
        probability: least probability among them.
        images: number of images.
        right: number of correct answers.
    """

    probability: float
    images: int
    right: int


class Calibration(Document):
    """Calibration of a version's probabilities, measured on held-out images that its temperatures
    were not fitted to.

    Attributes:
        error: expected calibration error minus the part due to chance. Without miscalibration it is
            around 0 and may be negative.
        low, high: 95 % interval of `error`.
        raw: error with the part due to chance.
        images: number of images.
        bins: bins of rising probability.
        curve: points from the surest answers on.
    """

    error: float
    low: float
    high: float
    raw: float
    images: int
    bins: list[CalibrationBin]
    curve: list[CoveragePoint] = Field(default_factory=list)


class VersionFigures(Document):
    """All measured figures of a version, such as drift and calibration; None or absent where one is
    not known.

    Attributes:
        baseline_later: task → row of the head → number of images of the task. `baseline_lda`
            classifies them wrongly, but correctly among the classes before that row. This allows a
            comparison with a version that knew only those classes.
    """

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
