"""Results of a job process in `result.json`: a finished one, or the best validated state so far."""

from typing import Literal

from pydantic import Field

from core.contract.architecture import NetworkFamilyDescription, Normalisation, TaskHeadDescription
from core.contract.document import Document, Number
from core.contract.figures import VersionFigures
from core.contract.jobs.trial import TrialScore
from core.contract.manifest import Environment, ManifestMethod, Temperature, ValidationScore


class NewVersionPartFile(Document):
    """A part of the new version (backbone, head …) as a file in the job's result folder."""

    name: str
    type: str
    file: str


MeasuredVersion = Literal["base", "parent", "new"]
"""The measured version: version 0, the one that the task continues, or the one just learned."""


class MeasuredMatrixCell(Document):
    """One cell of the accuracy matrix: a version's result on a task's held-out images.

    Attributes:
        version: the version.
        task: number of the task.
        correct: images classified correctly; in other problems, predictions that count as right.
        total: all images.
        per_class: label → [correct, total].
        measure: the problem's primary measure in [0, 1]; absent where it is `correct` / `total`.
    """

    version: MeasuredVersion
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]
    measure: Number | None = None

    @property
    def primary_measure(self) -> float | None:
        """Value of the problem's primary measure (such as accuracy) in [0, 1]; None without images."""
        if self.measure is not None:
            return self.measure
        return self.correct / self.total if self.total else None

    @property
    def correct_count(self) -> int:
        """Number of correct predictions, or the integer whose share of the images is nearest to the
        measure.

        The accuracy matrix has counts, which databases list as whole numbers.
        """
        return self.correct if self.measure is None else round(self.measure * self.total)


class TaskPredictionsByteRange(Document):
    """A version's predictions on a task's held-out images, as part of a file in the job's result
    folder.

    Attributes:
        begin, end: its bytes in the file.
    """

    version: MeasuredVersion
    task: int
    file: str
    begin: int
    end: int


class TaskHeldOutFeaturesFile(Document):
    """File in the job's result folder with the features float32 [N, D] of a task's held-out images."""

    task: int
    file: str


class LearnedNetworkRecord(Document):
    """Record of a learned network: all that is needed to rebuild it and to know how it was made.

    Attributes:
        steps: training steps.
        problem: what it predicts; None, as in documents without it, is classification.
    """

    parts: list[NewVersionPartFile] = Field(default_factory=list)
    classes: list[str]
    heads: list[TaskHeadDescription]
    network: NetworkFamilyDescription | None = None
    method: ManifestMethod
    normalise: Normalisation
    environment: Environment
    steps: int
    temperature: Temperature | None = None
    problem: str | None = None


class BestStateSoFarResult(LearnedNetworkRecord):
    """Result document of the best validated state so far, which can be downloaded during the job."""

    validation: ValidationScore


class LearnJobResult(LearnedNetworkRecord, VersionFigures):
    """Result document of a finished learning job: the network, its measurements and its files.

    Attributes:
        results: cells of the accuracy matrix.
        answers: answers of versions on held-out images.
        held_out_features: features of held-out images.
        totals: file with the sums and features of all tasks, for the next job.
        trainable, parameters: numbers of parameters.
        images: images of the training.
        warnings: sentences for a person.
        score: of a trial.
    """

    results: list[MeasuredMatrixCell]
    answers: list[TaskPredictionsByteRange] = Field(default_factory=list)
    held_out_features: list[TaskHeldOutFeaturesFile] = Field(default_factory=list)
    totals: str | None = None
    trainable: int
    parameters: int
    images: int
    warnings: list[str] = Field(default_factory=list)
    score: TrialScore | None = None
