"""Admission: limits on parameters and on estimated memory, checked before a job exists.

The estimate is the sum of three terms: copies of the weights, activations, and everything else. It
is meant to lie above the real use (measured: 1.2 to 2.7 times, `docs/reference/limits.md`): an
estimate that is too low would let jobs start that are then ended at their memory limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.admission.network_size import NetworkSize, find_network_size
from core.contract.catalogue import RecipeCatalogue
from core.contract.projection import resolve_random_feature_count
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.contract.responses.catalogue import Footprint, MethodEntry
from core.contract.responses.recipe import RecipeOut
from core.database.tables import Model, Task
from core.errors import JobTooLarge
from core.settings import Settings

FLOAT_BYTES, DOUBLE_BYTES = 4, 8
EVAL_IMAGES, EVAL_PIXELS = 256, 1 << 20
"""Images of one pass without gradients, and pixels of such a pass, as in `core.learning.evaluation.evaluate`."""
PASSING = 3
"""Sizes of the widest layer that a forward pass holds besides saved activations: its input, its
output and the workspace of the operation.
"""
SOLVING = 6
"""Square matrices of a solve: second moments of all tasks and of one, eigenvectors, workspace."""
LEFT_OUT, JUDGING = 2000, 5
"""Retained examples that judge a solution (`core.learning.methods.analytic`), and their matrices."""
FIXED_BYTES = 640 << 20
"""Bytes that every job takes: workspace of the operations, and images scaled in advance."""
MOST_EARLIER = 20
"""Maximum number of earlier tasks for which a method keeps separate state; older tasks share one.
"""
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
"""Footprint assumed for a method that declares none."""
_MOMENTS = {"sgd": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class JobTaskAndImageCounts:
    """Amount of data that a job works on: the number of tasks and of training images.

    Attributes:
        tasks: number of the model's tasks, including the one of the job.
        images: training images of all those tasks.
    """

    tasks: int = 1
    images: int = 0


FIRST = JobTaskAndImageCounts()


@dataclass(frozen=True)
class AdmissionLimits:
    """Limits that a job is checked against before it is queued: parameters of its network and bytes
    of memory; 0 means no limit.
    """

    max_parameters: int = 0
    job_bytes: int = 0

    @staticmethod
    def from_settings(settings: Settings) -> "AdmissionLimits":
        """Return the limits on a network's size and a job's memory that the settings define."""
        return AdmissionLimits(settings.max_parameters, settings.max_admitted_job_memory_bytes)

    def check_network_size(
        self, catalogue: RecipeCatalogue, architecture: ArchitectureChoice, image: ImageOut
    ) -> None:
        """Check that a network has no more parameters than allowed.

        An architecture of unknown size passes.

        Raises:
            JobTooLarge: the network has too many parameters.
        """
        size = find_network_size(architecture, image, catalogue.get("pretrained", {}))
        if size is not None:
            self._check_parameter_count(architecture, size.parameters)

    def check_job_memory(
        self,
        catalogue: RecipeCatalogue,
        architecture: ArchitectureChoice,
        image: ImageOut,
        recipe: RecipeOut,
        work: JobTaskAndImageCounts = FIRST,
    ) -> None:
        """Check that the estimated memory of a job is within the limit.

        Args:
            recipe: resolved recipe.

        Raises:
            JobTooLarge: the job would take too much; the message shows the arithmetic.
        """
        size = find_network_size(architecture, image, catalogue.get("pretrained", {}))
        if size is None:
            # The size of a custom architecture is unknown here; the limit on running jobs still
            # holds.
            return
        entry = catalogue["methods"][recipe["method"]["name"]]
        # DER-net adds a backbone with each task, so that its network has as many of them.
        networks = work.tasks if entry.get("family") == "der-net" else 1
        self._check_parameter_count(architecture, networks * size.parameters)
        estimate = estimate_job_memory(entry, size, image, recipe, work)
        if self.job_bytes and estimate.total_bytes > self.job_bytes:
            raise JobTooLarge(
                f"{estimate.explain_memory_estimate()} One job may take {_format_gigabytes(self.job_bytes)} here "
                f"(PERENNIAL_JOB_MEMORY_BYTES). "
                f"{_suggest_smaller_job(estimate)}",
                fields=[
                    {
                        "field": "architecture",
                        "message": f"a job would take {_format_gigabytes(estimate.total_bytes)}",
                    }
                ],
                extra={"needed": estimate.total_bytes, "limit": self.job_bytes},
            )

    def _check_parameter_count(self, architecture: ArchitectureChoice, parameters: int) -> None:
        if self.max_parameters and parameters > self.max_parameters:
            raise JobTooLarge(
                f"The network {architecture['name']} would have {parameters:,} parameters; one may "
                f"have {self.max_parameters:,} here (PERENNIAL_MAX_PARAMETERS). Take a smaller "
                f"one.",
                fields=[{"field": "architecture", "message": f"{parameters:,} parameters"}],
                extra={"needed": parameters, "limit": self.max_parameters},
            )


ANY = AdmissionLimits()
"""Admission without limits, for callers that need none."""


@dataclass(frozen=True)
class NewJobLimits:
    """Limits that a new job must meet: its owner's unfinished jobs, and its network's size and
    memory.

    Attributes:
        max_open_jobs: unfinished jobs that its owner may have; 0 for no limit.
        admission: limits on its network and its memory.
    """

    max_open_jobs: int = 0
    admission: AdmissionLimits = ANY


NO_LIMITS = NewJobLimits()


@dataclass(frozen=True)
class JobMemoryEstimate:
    """Estimated memory of a job as a sum of parts; `explain_memory_estimate` puts it in words."""

    method: str
    parameters: int
    copies: float
    images: int  # images whose activations are held at once
    activations: int  # float32 values of one image
    image_bytes: int  # bytes of images that the method retains
    columns: int = 0  # columns of the second moments that the method keeps for each task
    tasks: int = 0  # number of tasks whose second moments are loaded

    @property
    def weight_bytes(self) -> int:
        """Bytes of all copies of the network's weights that a job holds in memory."""
        return int(self.parameters * FLOAT_BYTES * self.copies)

    @property
    def activation_bytes(self) -> int:
        """Bytes of the activations of one training batch in a job's memory."""
        return self.images * self.activations * FLOAT_BYTES

    @property
    def second_moment_bytes(self) -> int:
        """Bytes of one task's matrix of second moments of features, stored as a triangle."""
        return self.columns * (self.columns + 1) // 2 * DOUBLE_BYTES

    @property
    def closed_form_solve_bytes(self) -> int:
        """Bytes of the matrices that solving a closed-form classifier holds at once, with its
        evaluation examples.
        """
        return (SOLVING * self.columns + JUDGING * LEFT_OUT) * self.columns * DOUBLE_BYTES

    @property
    def closed_form_memory_bytes(self) -> int:
        """Bytes that a closed-form classifier needs: second moments of all tasks, and the solve."""
        return self.tasks * self.second_moment_bytes + self.closed_form_solve_bytes

    @property
    def total_bytes(self) -> int:
        """Estimated bytes of a job's whole memory."""
        return (
            self.weight_bytes
            + self.activation_bytes
            + self.closed_form_memory_bytes
            + self.image_bytes
            + FIXED_BYTES
        )

    def explain_memory_estimate(self) -> str:
        """Return a job's memory estimate as a sentence that shows the arithmetic."""
        sums = (
            f"sums of {self.tasks:,} tasks × {_format_megabytes(self.second_moment_bytes)} ({self.columns:,} "
            f"columns) and their solution "
            f"{_format_megabytes(self.closed_form_solve_bytes)} = {_format_gigabytes(self.closed_form_memory_bytes)}; "
            if self.columns
            else ""
        )
        return (
            f"A job of this model would take about {_format_gigabytes(self.total_bytes)}: {self.parameters:,} "
            f"parameters × {FLOAT_BYTES} "
            f"bytes × {self.copies:g} copies (weights, gradients, optimizer, the version before, "
            f"and what {self.method} keeps) = {_format_gigabytes(self.weight_bytes)}; activations of "
            f"{self.images} images × {self.activations:,} × {FLOAT_BYTES} bytes = "
            f"{_format_gigabytes(self.activation_bytes)}; {sums}kept images and the rest "
            f"{_format_gigabytes(self.image_bytes + FIXED_BYTES)}."
        )


def estimate_job_memory(
    entry: MethodEntry,
    size: NetworkSize,
    image: ImageOut,
    recipe: RecipeOut,
    work: JobTaskAndImageCounts,
) -> JobMemoryEstimate:
    """Estimate the bytes of memory that a job needs.

    Args:
        entry: catalogue entry of the method; its `footprint` describes its memory.
        size: size of the network.
        image: image settings of the model.
        recipe: resolved recipe.
        work: number of tasks and of images.
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
    # Plain SGD without momentum is the only optimizer that holds nothing for each weight.
    elif optimizer.get("momentum", 0.9) or optimizer.get("name", "sgd") != "sgd":
        copies += _MOMENTS.get(optimizer.get("name", "sgd"), 2)
    training = footprint.get("batches", 1.0) * recipe.get("batch_size", 32)
    images = max(int(training), footprint.get("images", 0))
    passing = PASSING * size.widest
    # Without a backward pass through the backbone, no output of its layers has to stay in memory.
    activations = passing if head_alone else size.activations + passing
    # Evaluation runs in large batches without gradients and can need more than training does.
    measured = max(1, min(EVAL_IMAGES, EVAL_PIXELS // int(image["size"]) ** 2))
    if images * activations < measured * passing:
        images, activations = measured, passing
    # A replay buffer has a fixed number of images; `memory` is a number of images for each task.
    retained_images = max(
        (min(int(hypers.get(name) or 0), work.images) for name in _KEPT_IMAGES), default=0
    )
    if "memory" in hypers:
        retained_images = min(int(hypers["memory"] or 0) * work.tasks, work.images)
    pixels = int(image["channels"]) * int(image["size"]) ** 2
    weights = (size.parameters, copies, images, activations, 2 * retained_images * pixels)
    if not (chosen := footprint.get("columns", "")):
        return JobMemoryEstimate(method["name"], *weights)
    # 0 means no random features: the network's own are used, with a column of ones for the bias.
    columns = resolve_random_feature_count(hypers.get(chosen), size.features) or size.features + 1
    return JobMemoryEstimate(method["name"], *weights, columns, work.tasks)


def _suggest_smaller_job(estimate: JobMemoryEstimate) -> str:
    """Suggest a change of the recipe that reduces a job's memory."""
    # Smaller images or batches do not help where second moments take most of the memory.
    if 2 * estimate.closed_form_memory_bytes > estimate.total_bytes:
        return (
            "Take fewer columns in a new model (recipe.method.projection, or an architecture with "
            "fewer features), or another method."
        )
    return "Take a smaller architecture, image.size or recipe.batch_size, or another method."


def count_tasks_and_images_of_job(
    session: Session, model: Model, task: int, images: int = 0
) -> JobTaskAndImageCounts:
    """Return the number of tasks and training images that a job for a model's task works
    on.

    Args:
        task: number of the task, from 1.
        images: images of a batch that is not decoded yet, counted in addition.
    """
    trained_images = session.scalar(select(func.sum(Task.n_train)).where(Task.model_id == model.id))
    # PostgreSQL gives a sum as a Decimal, and a sum over no rows is NULL.
    return JobTaskAndImageCounts(max(1, task), int(trained_images or 0) + images)


def _format_gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _format_megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
