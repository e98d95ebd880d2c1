"""What a job process leaves behind, in `result.json` beside its parts: a result, or the best validated state so far."""

from typing import Literal

from pydantic import Field

from core.protocol.architecture import Head, NetworkDescription, Normalisation
from core.protocol.document import Document
from core.protocol.figures import Figures
from core.protocol.manifest import Environment, MadeBy, Temperature, Validated


class ResultPart(Document):
    """A part as a file of the result's folder."""

    name: str
    type: str
    file: str


Measured = Literal["base", "parent", "new"]
"""Which version was measured: version 0, the one that the task continues, or what the job has learned."""


class MeasuredCell(Document):
    """One cell of the accuracy matrix: a version on the held-out part of a task; `per_class`: label →
    [correct, total]."""

    version: Measured
    task: int
    correct: int
    total: int
    per_class: dict[str, list[int]]


class AnswersFile(Document):
    """What a version said of a task's held-out images, as a file of the result's folder: see core.store.answers."""

    version: Measured
    task: int
    file: str


class FeaturesFile(Document):
    """Features float32 [N, D] of a task's held-out images, as a file of the result's folder."""

    task: int
    file: str


class LearnedNetwork(Document):
    """What is needed to build a network again, and to know how it was made; `steps` of training."""

    parts: list[ResultPart] = Field(default_factory=list)
    classes: list[str]
    heads: list[Head]
    network: NetworkDescription | None = None
    method: MadeBy
    normalise: Normalisation
    environment: Environment
    steps: int
    temperature: Temperature | None = None


class AnytimeResult(LearnedNetwork):
    """The best validated state so far."""

    validation: Validated


class JobResult(LearnedNetwork, Figures):
    """All that a finished job says. trainable, parameters: how many numbers; images: of the training; totals: a file
    that stands for the sums and features of all tasks in the next job."""

    results: list[MeasuredCell]
    answers: list[AnswersFile] = Field(default_factory=list)
    held_out_features: list[FeaturesFile] = Field(default_factory=list)
    totals: str | None = None
    trainable: int
    parameters: int
    images: int
    warnings: list[str] = Field(default_factory=list)
