"""The accuracy matrix R and its summary figures, as pure functions of rows and cells.

`R[v][j]` is the accuracy of version v on the held-out part of task j. Figures follow the ancestors
of one version: stages 0 (the base) … T, where stage i learned task t_i. Backward and forward
transfer follow Lopez-Paz and Ranzato 2017 (arXiv 1706.08840), forgetting and intransigence Chaudhry
et al. 2018 (arXiv 1801.10112). Counts are stored, accuracies are derived. Sums include only defined
entries; undefined values are None, never 0.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.contract.responses.versions.metrics import MatrixSummary, UnmeasuredClass

Cells = Mapping[tuple[int, int], tuple[int, int]]
"""(version, task) → (correct, total). A missing cell, or a total of 0, is undefined."""
ClassCells = Mapping[tuple[int, int], Mapping[str, Sequence[int]]]
"""(version, task) → label → (correct, total)."""

DEFINITIONS = {
    "accuracy_matrix": "Row: version. Column: task. Share of the task's held-out images that the "
    "version classifies correctly; null where it was not taught the task, cannot answer, or it was "
    "not measured. Ties go to the first class, so version 0, whose head is zero, answers its first "
    "class.",
    "acc": "ACC: mean over the learned tasks of the version's accuracy.",
    "pooled": "Accuracy over all held-out images of the learned tasks together.",
    "macro": "Mean over the learned classes of the version's accuracy; classes without held-out "
    "images are left out.",
    "last": "LA: the version's primary accuracy, which is `pooled` in the data and class scenarios "
    "and `acc` in the task scenario.",
    "by_stage": "The primary accuracy of each version from the first to this one.",
    "average_incremental": "AA: mean of `by_stage`.",
    "bwt": "Backward transfer: mean over earlier tasks of accuracy now minus accuracy when "
    "learned.",
    "fwt": "Forward transfer: mean over tasks from the second on of accuracy just before learning "
    "it minus accuracy of version 0. Null in the class scenario, whose new labels cannot be "
    "answered, and in the task scenario, where an untrained head answers nothing: see `fwt_probe`.",
    "fwt_probe": "Forward transfer of the features: as `fwt`, with the accuracy of the k-NN probe.",
    "forgetting": "Mean over earlier tasks of the best accuracy since it was learned minus "
    "accuracy now; negative means gain.",
    "forgetting_literal": "As `forgetting`, with the best accuracy of any version from the first "
    "on, also before the task was learned.",
    "forgetting_by_stage": "`forgetting` at each version from the second to this one.",
    "per_task": "For each learned task: accuracy when learned, accuracy now, and its forgetting.",
    "learning_accuracy": "Mean over tasks of the accuracy right after learning it.",
    "regression_rate": "Share of held-out images that the parent classified correctly and this "
    "version does not, over the tasks that both can answer.",
    "improvement_rate": "Share of these images that this version classifies correctly and the "
    "parent did not. Accuracy now minus accuracy before, on the same images, is improvement minus "
    "regression.",
    "intransigence": "Mean over tasks of the accuracy of a reference trained jointly on all tasks "
    "so far minus accuracy right after learning it; null without a reference.",
    "intransigence_last": "The intransigence of the last task.",
    "gap_to_joint": "D: primary accuracy of a reference trained jointly minus this version's; null "
    "without one.",
    "gap_by_stage": "D at each version from the first to this one.",
    "update_norm": "Per version, the Euclidean norm of the change of the backbone from the parent, "
    "over the weights that the task could move; null if unknown.",
    "update_norm_head": "As `update_norm`, of the heads: the rows that the parent has too.",
    "update_norm_relative": "Per version, the norm of the change of all weights that the task "
    "could move, divided by their norm before; null if unknown.",
    "drift": "Per version, the Euclidean distance of the backbone from version 0; null if unknown.",
    "predicted_loss_rise": "Per version, the rise of the earlier tasks' mean loss that its method "
    "forecast from what it keeps of them, without their images, in units of that loss; null for a "
    "method that does not forecast, and for a first task.",
    "measured_loss_rise": "Per version with a forecast, what the rise was on the held-out images "
    "of the earlier tasks, each task counted alike; by task in the version's manifest. Null where "
    "nothing could be measured.",
    "adp_mean": "Per version, Anytime Deployment Performance on the held-out images of its task "
    "and of earlier ones: mean, over checkpoints at Fibonacci steps, of the accuracy of the state "
    "that was the best validated by then; null without `anytime`. The curve is in the version's "
    "manifest.",
    "seconds": "Per version, seconds from the first claim of its job to its publish, pauses "
    "included; null if unknown.",
    "bytes": "Per version, the bytes of its parts as published, whether or not it shares them.",
    "knn_probe": "Leave-one-out k-nearest-neighbour accuracy of the version's features on the "
    "held-out images: over all tasks together and per task. It does not depend on the head.",
    "baseline_ncm": "Per version, what its features could do: accuracy of the nearest class mean "
    "(cosine similarity) made of held-out images, five-fold, over the tasks that it can answer; in "
    "the task scenario among a task's classes. By task, and beside the version's own accuracy on "
    "the same images, in its manifest. Null with `held_out` counts, with fewer than 20 images, "
    "where more than a tenth of the classes have fewer than two, and of versions from before it "
    "was measured.",
    "baseline_lda": "As `baseline_ncm`, by a linear discriminant with a uniform prior; also null "
    "with more than 2,048 features.",
    "calibration": "How far the probabilities of the version are off on held-out images: expected "
    "calibration error in bins of at least 50 images, less what chance alone adds, so around 0 "
    "where nothing is off; with its 95 % interval and the bins of a reliability diagram. Each half "
    "of the images is answered with the temperature of the other. Null with fewer than 50 held-out "
    "images, and of versions from before it was measured.",
    "sure": "How many held-out images the version answers surely, and how many of these rightly: "
    "the largest share whose precision is the promised one (`answers` of the model) with 95 % "
    "confidence. Null where nothing is promised.",
    "degenerate": "Learned tasks with a single class to answer: their accuracy is 1 whatever was "
    "learned.",
    "unmeasured_classes": "Learned classes without held-out images: in no accuracy.",
}


def get_metric_definitions(problem: str | None) -> dict[str, str]:
    """Return the definitions of metrics in words, with the problem's own primary measure.

    problem: None is classification.
    """
    if problem is None:
        return DEFINITIONS
    cells = (
        f"Row: version. Column: task. Primary measure of {problem} on the task's held-out images, "
        "from 0 to 1, as the nearest share of whole images; null where the version was not taught "
        "the task, cannot answer, or it was not measured. What is called accuracy elsewhere is "
        "this measure."
    )
    return {**DEFINITIONS, "accuracy_matrix": cells}


@dataclass(frozen=True)
class AccuracyMatrixVersion:
    """A version as a row of the accuracy matrix: number, task, parent and taught tasks.

    Attributes:
        version: number of the version.
        task: the task it learned; None for version 0.
        parent: number of its parent; None for version 0.
        tasks: all tasks it was taught; None if they follow from the versions along its parents.
    """

    version: int
    task: int | None
    parent: int | None
    tasks: tuple[int, ...] | None = None


def build_accuracy_matrix(
    rows: Sequence[AccuracyMatrixVersion], columns: Sequence[int], cells: Cells
) -> list[list[float | None]]:
    """Build the accuracy matrix: a list per version with an accuracy in [0, 1], or None, per
    task.
    """
    return [[_compute_cell_accuracy(cells, row.version, task) for task in columns] for row in rows]


def list_matrix_rows_of_lineage(
    rows: Sequence[AccuracyMatrixVersion], version: int
) -> list[AccuracyMatrixVersion]:
    """List the accuracy matrix's rows from version 0 to `version`, along the parents.

    Raises:
        KeyError: `version`, or one of its ancestors, is not among the rows.
    """
    by_version = {row.version: row for row in rows}
    lineage = [by_version[version]]
    while (parent := lineage[-1].parent) is not None:
        lineage.append(by_version[parent])
    return lineage[::-1]


class LineageAccuracyMatrix:
    """The accuracy matrix R along one version's ancestors, with the metrics derived from it.

    Args:
        rows: versions, among them `version` and its ancestors.
        cells: counts of each (version, task).
        version: number of the version.
        scenario: data, task or class; determines the primary accuracy and whether FWT is defined.
        slices: whether each task has its own test images. With one common test set all columns are
            equal, so transfer and forgetting are undefined.
        zero_heads: task scenario only: heads of tasks that are not learned yet are zero. FWT would
            then be 0 by construction, so it is undefined.

    Raises:
        KeyError: `version`, or one of its ancestors, is not among the rows.
    """

    def __init__(
        self,
        rows: Sequence[AccuracyMatrixVersion],
        cells: Cells,
        version: int,
        scenario: str,
        *,
        slices: bool = True,
        zero_heads: bool = True,
    ) -> None:
        self.line = list_matrix_rows_of_lineage(rows, version)
        self.last = len(self.line) - 1
        self.learned: dict[int, int] = {}  # task → first stage that learned it
        tasks = self.line[-1].tasks
        taught = None if tasks is None else frozenset(tasks)
        for stage, row in enumerate(self.line):
            if row.task is not None and (taught is None or row.task in taught):
                # A task may be learned again; forgetting counts from the first time.
                self.learned.setdefault(row.task, stage)
        self.scenario = scenario
        self._cells = cells
        # Computed once: the figures of a lineage look up each accuracy many times.
        self._accuracies = {
            cell: correct / total for cell, (correct, total) in cells.items() if total
        }
        self._slices = slices
        self._forward = scenario == "data" or (scenario == "task" and not zero_heads)

    def get_task_accuracy(self, stage: int, task: int) -> float | None:
        """Return the accuracy on a task after a stage, in [0, 1], or None if it is undefined."""
        return self._accuracies.get((self.line[stage].version, task))

    def list_seen_tasks(self, stage: int) -> list[int]:
        """List the tasks learned up to a stage, in the order in which they were first learned."""
        return [task for task, at in self.learned.items() if at <= stage]

    def compute_mean_task_accuracy(self, stage: int) -> float | None:
        """Compute the mean accuracy over the tasks seen."""
        return average_defined_values(
            self.get_task_accuracy(stage, task) for task in self.list_seen_tasks(stage)
        )

    def compute_pooled_accuracy(self, stage: int) -> float | None:
        """Compute the accuracy over all images of the tasks seen, or of the common test set."""
        counts = [
            self._cells.get((self.line[stage].version, task), (0, 0))
            for task in self.list_seen_tasks(stage)
        ]
        return _divide_unless_zero(
            sum(correct for correct, _ in counts), sum(total for _, total in counts)
        )

    def compute_mean_class_accuracy(self, stage: int, per_class: ClassCells) -> float | None:
        """Compute the mean accuracy over the classes seen that have test images.

        In the task scenario the classes of each head count separately.
        """
        version, totals = self.line[stage].version, dict[tuple[int | None, str], tuple[int, int]]()
        for task in self.list_seen_tasks(stage):
            for label, (correct, total) in per_class.get((version, task), {}).items():
                key = (task if self.scenario == "task" else None, label)
                counts = totals.get(key, (0, 0))
                totals[key] = (counts[0] + correct, counts[1] + total)
        return average_defined_values(
            _divide_unless_zero(correct, total) for correct, total in totals.values()
        )

    def compute_primary_accuracy(self, stage: int) -> float | None:
        """Compute the primary accuracy A_i: over all images, or the mean over tasks in the task
        scenario.
        """
        return (
            self.compute_mean_task_accuracy(stage)
            if self.scenario == "task"
            else self.compute_pooled_accuracy(stage)
        )

    def list_accuracies_by_stage(self) -> list[float | None]:
        """List the primary accuracies A_1 … A_T after each stage."""
        return [self.compute_primary_accuracy(stage) for stage in range(1, self.last + 1)]

    def compute_backward_transfer(self) -> float | None:
        """Compute backward transfer: 1/(T-1) Σ_{j<T} (R[T][j] - R[j][j])."""
        return average_defined_values(
            _subtract_or_none(
                self.get_task_accuracy(self.last, j), self.get_task_accuracy(self.learned[j], j)
            )
            for j in self._list_earlier_tasks(self.last)
        )

    def compute_forward_transfer(self) -> float | None:
        """Compute forward transfer: 1/(T-1) Σ_{j≥2} (R[j-1][j] - R[0][j])."""
        if not self._forward or not self._slices:
            return None
        # Before the first task there is only version 0, so the difference would be 0 by
        # construction.
        later = [j for j, at in self.learned.items() if at >= 2]
        return average_defined_values(
            _subtract_or_none(
                self.get_task_accuracy(self.learned[j] - 1, j), self.get_task_accuracy(0, j)
            )
            for j in later
        )

    def compute_task_forgetting(
        self, task: int, stage: int, *, literal: bool = False
    ) -> float | None:
        """Compute the forgetting of a task: f_j^k = max_l R[l][j] - R[k][j], with l from j to k -
        1.

        Args:
            task: j.
            stage: k.
            literal: let l start at 1, before the task was learned.
        """
        # Not from stage 0: the base is no version that could forget.
        first = 1 if literal else self.learned[task]
        best = [
            a
            for earlier in range(first, stage)
            if (a := self.get_task_accuracy(earlier, task)) is not None
        ]
        return _subtract_or_none(max(best, default=None), self.get_task_accuracy(stage, task))

    def compute_mean_forgetting(self, stage: int, *, literal: bool = False) -> float | None:
        """Compute mean forgetting F_k over the tasks learned before stage k.

        The range is [-1, 1]; a negative value is a gain.
        """
        return average_defined_values(
            self.compute_task_forgetting(j, stage, literal=literal)
            for j in self._list_earlier_tasks(stage)
        )

    def compute_learning_accuracy(self) -> float | None:
        """Compute learning accuracy: the mean of R[j][j], the accuracy on each task just
        learned.
        """
        return average_defined_values(
            self.get_task_accuracy(at, task) for task, at in self.learned.items()
        )

    def compute_intransigence(self, reference: Sequence[float | None]) -> list[float | None]:
        """Compute intransigence I_k = a*_k - R[k][k] for each stage k from 1, against a joint
        reference.

        Args:
            reference: a*_k, the accuracy on task k of a model trained jointly on the tasks 1 … k.

        Raises:
            ValueError: `reference` does not have one value per stage.
        """
        when_learned = [
            self.get_task_accuracy(k, task)
            for k, row in enumerate(self.line)
            if (task := row.task) is not None
        ]
        return [_subtract_or_none(best, r) for best, r in zip(reference, when_learned, strict=True)]

    def compute_gap_to_joint(self, joint: Sequence[float | None]) -> list[float | None]:
        """Compute the gap to joint training after each stage from 1: the reference's A_i minus A_i.

        Args:
            joint: primary accuracies of models trained jointly on the tasks 1 … i, with the same
                network and recipe.

        Raises:
            ValueError: `joint` does not have one value per stage.
        """
        return [
            _subtract_or_none(best, accuracy)
            for best, accuracy in zip(joint, self.list_accuracies_by_stage(), strict=True)
        ]

    def _list_earlier_tasks(self, stage: int) -> list[int]:
        return [task for task, at in self.learned.items() if at < stage] if self._slices else []


def compute_regression_and_improvement_rates(
    changes: Iterable[Sequence[int]],
) -> tuple[float | None, float | None]:
    """Compute (regression rate, improvement rate) from counts of prediction flips on the same
    images.

    Improvement minus regression is exactly the difference of the two accuracies.

    Args:
        changes: (regressed, improved, total) counts.
    """
    # The zeros give a sum to columns without any change.
    regressed, improved, total = (sum(column) for column in zip((0, 0, 0), *changes, strict=True))
    return _divide_unless_zero(regressed, total), _divide_unless_zero(improved, total)


def find_single_class_tasks(
    stages: LineageAccuracyMatrix, classes: Mapping[int, Collection[str]]
) -> list[int]:
    """Find tasks with a single possible class, on which accuracy is meaningless.

    Args:
        stages: the version's stages.
        classes: task → labels.
    """
    tasks = stages.list_seen_tasks(stages.last)
    if stages.scenario == "task":
        return [task for task in tasks if len(classes.get(task, ())) == 1]
    labels = {label for task in tasks for label in classes.get(task, ())}
    return tasks if len(labels) == 1 else []


def find_learned_classes_without_test_images(
    stages: LineageAccuracyMatrix,
    per_class: ClassCells,
    classes: Mapping[int, Collection[str]],
    ever: Collection[int] | None = None,
) -> list[UnmeasuredClass]:
    """Find learned classes without test images, as {"task", "class"} in order.

    Tasks that the version was measured on are covered, and tasks that no version was ever measured
    on, since those had no test images. Tasks that were measured when learned, and whose test images
    were removed later, are left out.

    Args:
        stages: the version's stages.
        per_class: counts per class.
        classes: task → labels.
        ever: tasks that some version was measured on; None means those of `per_class`.
    """
    version, heads = stages.line[-1].version, stages.scenario == "task"
    if ever is None:
        ever = {
            task
            for (_, task), counts in per_class.items()
            if any(total for _, total in counts.values())
        }
    measured = {
        task: per_class[version, task] for task in stages.learned if (version, task) in per_class
    }
    tested = {
        (task if heads else None, label)
        for task, counts in measured.items()
        for label, (_, total) in counts.items()
        if total
    }
    missing: dict[tuple[int | None, str], int] = {}
    for task in (task for task in stages.learned if task in measured or task not in ever):
        for label in sorted(classes.get(task, ())):
            key = (task if heads else None, label)
            if key not in tested:
                # A class of several tasks is one row of a common head, so it is listed once.
                missing.setdefault(key, task)
    return [{"task": task, "class": label} for (_, label), task in missing.items()]


def summarise_lineage_accuracy_matrix(
    stages: LineageAccuracyMatrix,
    per_class: ClassCells | None = None,
    joint: Sequence[float | None] | None = None,
    reference: Sequence[float | None] | None = None,
) -> MatrixSummary:
    """Compute all metrics of the newest version in the accuracy matrix.

    Args:
        stages: the version's stages.
        per_class: counts per class, for `macro_accuracy`.
        joint, reference: accuracies of jointly trained models; see
            `LineageAccuracyMatrix.compute_gap_to_joint` and its `compute_intransigence`.
    """
    last, by_stage = stages.last, stages.list_accuracies_by_stage()
    gap = None if joint is None else stages.compute_gap_to_joint(joint)
    lag = None if reference is None else stages.compute_intransigence(reference)
    return {
        "acc": stages.compute_mean_task_accuracy(last),
        "pooled": stages.compute_pooled_accuracy(last),
        "macro": stages.compute_mean_class_accuracy(last, per_class or {}),
        "last": stages.compute_primary_accuracy(last),
        "by_stage": by_stage,
        "average_incremental": average_defined_values(by_stage),
        "bwt": stages.compute_backward_transfer(),
        "fwt": stages.compute_forward_transfer(),
        "forgetting": stages.compute_mean_forgetting(last),
        "forgetting_literal": stages.compute_mean_forgetting(last, literal=True),
        "forgetting_by_stage": [
            stages.compute_mean_forgetting(stage) for stage in range(2, last + 1)
        ],
        "per_task": [
            {
                "task": task,
                "when_learned": stages.get_task_accuracy(at, task),
                "now": stages.get_task_accuracy(last, task),
                "forgetting": stages.compute_task_forgetting(task, last),
            }
            for task, at in stages.learned.items()
        ],
        "learning_accuracy": stages.compute_learning_accuracy(),
        "intransigence": None if lag is None else average_defined_values(lag),
        "intransigence_last": lag[-1] if lag else None,
        "gap_to_joint": gap[-1] if gap else None,
        "gap_by_stage": gap,
    }


def average_defined_values(values: Iterable[float | None]) -> float | None:
    """Average the values that are not None; None if there are none."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _compute_cell_accuracy(cells: Cells, version: int, task: int) -> float | None:
    return _divide_unless_zero(*cells.get((version, task), (0, 0)))


def _divide_unless_zero(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _subtract_or_none(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
