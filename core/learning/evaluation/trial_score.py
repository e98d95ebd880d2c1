"""The score by which the results of different recipes for a batch are compared."""

from __future__ import annotations

from collections.abc import Sequence

from core.contract.jobs.job_spec import SelectionDataset
from core.contract.jobs.trial import TrialScore
from core.learning.analytic.choice import compute_class_average_and_error
from core.learning.evaluation.ancestors import StartingVersions
from core.learning.evaluation.evaluate import can_predict_task, score_network_on_task
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.training.context import TaskTrainingContext


def score_trial(
    network: Network,
    method: Method,
    ctx: TaskTrainingContext,
    parts: Sequence[SelectionDataset],
    ancestors: StartingVersions,
) -> TrialScore | None:
    """Score a trial's network: the mean accuracy over tasks on the images for comparing trials.

    Without such images it is the mean over classes of left-out answers. None if the method has none
    either.
    """
    if not parts:
        return _score_trial_by_left_out_examples(method, ctx)
    return _score_trial_on_selection_images(network, method, ctx.inputs, parts, ancestors)


def _score_trial_on_selection_images(
    network: Network,
    method: Method,
    inputs: InputNormaliser,
    parts: Sequence[SelectionDataset],
    ancestors: StartingVersions,
) -> TrialScore | None:
    counts: dict[str, list[int]] = {}
    for part in parts:
        data = ancestors.read_dataset(part.path, part.classes)
        if len(data) and can_predict_task(
            network, part.task, data.list_outputs_needed_to_measure()
        ):
            scores = score_network_on_task(network, data, part.task, method.predict_logits, inputs)
            counts[str(part.task)] = [int(data.problem.mask_right_scores(scores).sum()), len(data)]
        elif len(data):
            # A version that lost the task's classes gets none of its images right.
            counts[str(part.task)] = [0, len(data)]
    if not counts:
        return None
    shares = [right / images for right, images in counts.values()]
    # By the share of one right and one wrong image more: few images that are all right do not
    # make an accuracy certain.
    variances = [
        (right + 1) / (images + 2) * (images - right + 1) / (images + 2) / images
        for right, images in counts.values()
    ]
    return TrialScore(
        source="selection",
        value=sum(shares) / len(shares),
        error=sum(variances) ** 0.5 / len(shares),
        images=sum(images for _, images in counts.values()),
        tasks=counts,
    )


def _score_trial_by_left_out_examples(
    method: Method, ctx: TaskTrainingContext
) -> TrialScore | None:
    left_out = method.compute_left_out_scores(ctx)
    if left_out is None or not len(left_out[1]):
        return None
    scores, labels = left_out
    value, error = compute_class_average_and_error((scores.argmax(1) == labels).double(), labels)
    return TrialScore(source="left-out", value=value, error=error, images=len(labels))
