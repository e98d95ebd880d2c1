"""What may be started: a network's parameters, and an estimate of the memory that a job takes, before there is a job.

The estimate is a sum of three: copies of the weights, activations, and the rest. It is made to lie above what a job
takes (measured: 1.2 to 2.7 times, `docs/reference/limits.md`), since the other error ends jobs at their bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.db.tables import Model, Task
from core.errors import JobTooLarge
from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.answers.catalogue import Footprint, MethodEntry
from core.protocol.answers.recipe import RecipeOut
from core.protocol.catalogue import Catalogue
from core.protocol.projection import count_columns
from core.requests.network_size import Size, size_of
from core.settings import Settings

FLOAT_BYTES, DOUBLE_BYTES = 4, 8
EVAL_IMAGES, EVAL_PIXELS = 256, 1 << 22
"""Images of one pass without gradients, and their pixels, as `core.learn.evaluate` has them."""
PASSING = 3
"""Of the widest layer, what a pass holds beside what it keeps: its input, its output and the work space of
the operation."""
SOLVING = 6
"""Square matrices of a solve: second moments of all tasks and of one, eigenvectors, and the work space of both."""
LEFT_OUT, JUDGING = 4000, 5
"""Kept examples that judge a solution, as `core.learn.methods.analytic` has them, and their matrices at once."""
FIXED_BYTES = 640 << 20
"""What every job takes: work space of the operations, and images scaled in advance."""
MOST_EARLIER = 20
"""Earlier tasks for each of which a method keeps more; the oldest share."""
_KEPT_IMAGES = ("buffer", "exemplars")
_UNSAID: Footprint = {
    "copies": 7.0,
    "copies_with": {},
    "examples": 0.0,
    "growing": 0.0,
    "batches": 1.0,
    "images": 0,
    "columns": "",
}
"""Of a method that does not say what it holds."""
_MOMENTS = {"sgd": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Work:
    """What a job has to do beside its recipe: how many tasks the model has then, and images that they have shown."""

    tasks: int = 1
    images: int = 0


FIRST = Work()


@dataclass(frozen=True)
class Admission:
    """The bounds: parameters of a network, and bytes of a job; 0: none."""

    max_parameters: int = 0
    job_bytes: int = 0

    @staticmethod
    def of(settings: Settings) -> "Admission":
        """Those of the settings."""
        return Admission(settings.max_parameters, settings.admitted_job_bytes)

    def check_network(self, catalogue: Catalogue, architecture: ArchitectureChoice, image: ImageOut) -> None:
        """Raises JobTooLarge for a network with more parameters than one may have."""
        size = size_of(architecture, image, catalogue.get("pretrained", {}))
        if size is not None:
            self._check_parameters(architecture, size.parameters)

    def check_job(
        self,
        catalogue: Catalogue,
        architecture: ArchitectureChoice,
        image: ImageOut,
        recipe: RecipeOut,
        work: Work = FIRST,
    ) -> None:
        """Raises JobTooLarge, with the arithmetic, for a job that would take more than one may.

        Args:
            recipe: resolved.
        """
        size = size_of(architecture, image, catalogue.get("pretrained", {}))
        if size is None:
            return  # an architecture of somebody's own: its jobs have their bound all the same
        entry = catalogue["methods"][recipe["method"]["name"]]
        networks = work.tasks if entry.get("family") == "der-net" else 1
        self._check_parameters(architecture, networks * size.parameters)
        estimate = estimated(entry, size, image, recipe, work)
        if self.job_bytes and estimate.bytes > self.job_bytes:
            raise JobTooLarge(
                f"{estimate.said()} One job may take {_gb(self.job_bytes)} here (PERENNIAL_JOB_MEMORY_BYTES). "
                f"{_smaller(estimate)}",
                fields=[{"field": "architecture", "message": f"a job would take {_gb(estimate.bytes)}"}],
                extra={"needed": estimate.bytes, "limit": self.job_bytes},
            )

    def _check_parameters(self, architecture: ArchitectureChoice, parameters: int) -> None:
        if self.max_parameters and parameters > self.max_parameters:
            raise JobTooLarge(
                f"The network {architecture['name']} would have {parameters:,} parameters; one may have "
                f"{self.max_parameters:,} here (PERENNIAL_MAX_PARAMETERS). Take a smaller one.",
                fields=[{"field": "architecture", "message": f"{parameters:,} parameters"}],
                extra={"needed": parameters, "limit": self.max_parameters},
            )


ANY = Admission()
"""Takes everything: for callers without bounds."""


@dataclass(frozen=True)
class Estimate:
    """A job's memory as a sum; `said` has it in words."""

    method: str
    parameters: int
    copies: float
    images: int  # whose activations are held
    activations: int  # float32 values of one image
    kept: int  # bytes of images that the method keeps
    columns: int = 0  # of the second moments that the method keeps of each task
    tasks: int = 0  # whose second moments are loaded

    @property
    def weight_bytes(self) -> int:
        """Of all copies of the weights."""
        return int(self.parameters * FLOAT_BYTES * self.copies)

    @property
    def activation_bytes(self) -> int:
        """Of the activations of a batch."""
        return self.images * self.activations * FLOAT_BYTES

    @property
    def task_bytes(self) -> int:
        """Of one task's second moments: a triangle."""
        return self.columns * (self.columns + 1) // 2 * DOUBLE_BYTES

    @property
    def solve_bytes(self) -> int:
        """Of the matrices that a solution holds at once, and of the examples that judge it."""
        return (SOLVING * self.columns + JUDGING * LEFT_OUT) * self.columns * DOUBLE_BYTES

    @property
    def sums_bytes(self) -> int:
        """Of the sums of all tasks, and of what is solved with them."""
        return self.tasks * self.task_bytes + self.solve_bytes

    @property
    def bytes(self) -> int:
        """All memory of the job in bytes."""
        return self.weight_bytes + self.activation_bytes + self.sums_bytes + self.kept + FIXED_BYTES

    def said(self) -> str:
        """The estimate as a sentence, with its arithmetic."""
        sums = (
            f"sums of {self.tasks:,} tasks × {_mb(self.task_bytes)} ({self.columns:,} columns) and their solution "
            f"{_mb(self.solve_bytes)} = {_gb(self.sums_bytes)}; "
            if self.columns
            else ""
        )
        return (
            f"A job of this model would take about {_gb(self.bytes)}: {self.parameters:,} parameters × {FLOAT_BYTES} "
            f"bytes × {self.copies:g} copies (weights, gradients, optimizer, the version before, and what "
            f"{self.method} keeps) = {_gb(self.weight_bytes)}; activations of {self.images} images × "
            f"{self.activations:,} × {FLOAT_BYTES} bytes = {_gb(self.activation_bytes)}; {sums}kept images "
            f"and the rest {_gb(self.kept + FIXED_BYTES)}."
        )


def estimated(entry: MethodEntry, size: Size, image: ImageOut, recipe: RecipeOut, work: Work) -> Estimate:
    """The memory of a job.

    Args:
        entry: the catalogue's, of the method; its `footprint` says what it holds.
        recipe: resolved.
    """
    method, footprint = recipe["method"], entry.get("footprint", _UNSAID)
    hypers: Mapping[str, Any] = method
    copies = footprint.get("copies", _UNSAID["copies"])
    for hyper, by_value in footprint.get("copies_with", {}).items():
        copies = by_value.get(str(hypers.get(hyper)), copies)
    earlier = min(work.tasks - 1, MOST_EARLIER)
    copies += footprint.get("growing", 0.0) * earlier
    if size.shared:
        copies += footprint.get("examples", 0.0)
    optimizer = recipe.get("optimizer") or {}
    head_alone = recipe.get("depth") == 1
    if head_alone:
        copies -= 1  # no gradients
    elif optimizer.get("momentum", 0.9) or optimizer.get("name", "sgd") != "sgd":
        copies += _MOMENTS.get(optimizer.get("name", "sgd"), 2)
    training = footprint.get("batches", 1.0) * recipe.get("batch_size", 32)
    images = max(int(training), footprint.get("images", 0))
    passing = PASSING * size.widest
    activations = passing if head_alone else size.activations + passing
    measured = max(1, min(EVAL_IMAGES, EVAL_PIXELS // int(image["size"]) ** 2))
    if images * activations < measured * passing:
        images, activations = measured, passing
    kept = max((min(int(hypers.get(name) or 0), work.images) for name in _KEPT_IMAGES), default=0)
    if "memory" in hypers:
        kept = min(int(hypers["memory"] or 0) * work.tasks, work.images)
    pixels = int(image["channels"]) * int(image["size"]) ** 2
    weights = (size.parameters, copies, images, activations, 2 * kept * pixels)
    if not (chosen := footprint.get("columns", "")):
        return Estimate(method["name"], *weights)
    columns = count_columns(hypers.get(chosen), size.features) or size.features + 1
    return Estimate(method["name"], *weights, columns, work.tasks)


def _smaller(estimate: Estimate) -> str:
    """What to change."""
    if 2 * estimate.sums_bytes > estimate.bytes:
        return (
            "Take fewer columns in a new model (recipe.method.projection, or an architecture with fewer features), or "
            "another method."
        )
    return "Take a smaller architecture, image.size or recipe.batch_size, or another method."


def work_of(session: Session, model: Model, task: int, images: int = 0) -> Work:
    """What a job of a model's task has to do. images: of the batch, where it is not decoded yet."""
    shown = session.scalar(select(func.sum(Task.n_train)).where(Task.model_id == model.id))
    return Work(max(1, task), int(shown or 0) + images)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
