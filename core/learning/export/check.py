"""Comparison of a graph in ONNX Runtime with its version, before the graph is stored.

Both see the same images, of noise and of the version's own tasks. Where no probability differs by
more than the tolerance, the most probable class is the same wherever it leads by more than twice as
much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.contract.jobs.export_job import INPUT, get_head_output_name, get_sure_flag_output_name
from core.learning.evaluation import predicting
from core.learning.export.graph import ExportFailed
from core.learning.export.probability_module import ProbabilityModule
from core.learning.networks import Network

# One image, and two sizes that differ from the traced one: a fixed dimension shows at once.
BATCHES = (1, 3, 17)
MAX_HELD_OUT = 64
"""Maximum number of held-out images, of all tasks together."""
TOLERANCE = 1e-5
LINEARISED_TOLERANCE = 1e-3
"""Tolerance for linearised networks, which add a value and its derivative.

Both may be large and of opposite signs.
"""
MOST_TOLERANCE = 1e-2
"""Largest tolerance: if rounding alone moves probabilities by more, no graph can be checked."""
UNCHECKED = (
    " Rounding in float32 alone may move this answer that far: the scores behind it are large "
    "numbers that cancel out. Features that tell classes apart keep them small: give the model a "
    "pretrained base. The version itself can be downloaded as `safetensors`."
)
# Fixed, so that a repeated export is checked with the same images.
_SEED = 0

Images = NDArray[np.uint8]
Run = Callable[[Images], dict[str, Any]]
"""Function from images [N, size, size, channels] to the graph's outputs by name."""


@dataclass(frozen=True)
class ExportCheckResult:
    """Result of comparing an exported graph's predictions with its version's.

    Attributes:
        max_difference: largest difference of a probability.
        tolerance: largest difference allowed.
        images: number of noise images.
        held_out_images: number of held-out images.
    """

    max_difference: float
    tolerance: float
    images: int
    held_out_images: int


def compare_graph_with_version(
    path: Path,
    probability_module: ProbabilityModule,
    image: tuple[int, int],
    held_out: Mapping[int, Images],
    threads: int,
    max_images: int = MAX_HELD_OUT,
) -> ExportCheckResult:
    """Check an exported graph: compare its predictions with those of the version it was made from.

    Args:
        path: the graph.
        probability_module: the version.
        image: size and channels.
        held_out: task to images [N, size, size, channels] that the version knows.
        threads: for ONNX Runtime.
        max_images: maximum number of held-out images to compare, of all tasks together.

    Raises:
        ExportFailed: ONNX Runtime cannot run the graph for some size of batch, or its answers
            differ.
    """
    size, channels = image
    # The same noise each time, so that a failed check can be repeated.
    rng = np.random.default_rng(_SEED)
    noise = [
        rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8) for count in BATCHES
    ]
    run = load_onnx_graph_runner(path, threads)
    worst, tolerance, compared = 0.0, 0.0, 0
    for batch, tasks in _iterate_check_batches(probability_module, noise, held_out, max_images):
        outputs = run(batch)
        for task in tasks:
            ours, may = _compute_probabilities_and_tolerances(probability_module, batch, task)
            theirs = outputs[get_head_output_name(task)]
            _require_matching_probabilities(ours, theirs, may)
            if probability_module.sure_from is not None:
                _require_sure_output_to_match(
                    theirs, outputs[get_sure_flag_output_name(task)], probability_module.sure_from
                )
            worst = max(worst, float(np.abs(ours - theirs).max(initial=0.0)))
            tolerance = max(tolerance, float(may.max(initial=0.0)))
        compared += len(batch)
    random = sum(BATCHES)
    return ExportCheckResult(worst, tolerance, random, compared - random)


def compute_allowed_probability_differences(
    probabilities: NDArray[np.float32], moved: NDArray[np.float32], min_tolerance: float
) -> NDArray[np.float64]:
    """Compute the allowed difference of each probability [N, C], from `min_tolerance` to `MOST_TOLERANCE`.

    It is the difference if every score of an image changes by `moved` [N]. A probability is the
    sigmoid of its score's lead over the others, which changes by at most twice as much.
    """
    # Keep the logarithms below finite at probabilities of 0 and 1.
    p = np.clip(probabilities.astype(np.float64), 1e-300, 1 - 1e-16)
    lead, lead_change = np.log(p) - np.log1p(-p), 2 * moved[:, None].astype(np.float64)
    largest_difference = np.maximum(
        _compute_sigmoid(lead + lead_change) - p, p - _compute_sigmoid(lead - lead_change)
    )
    return np.clip(largest_difference, min_tolerance, MOST_TOLERANCE)


def _compute_sigmoid(lead: NDArray[np.float64]) -> NDArray[np.float64]:
    # Never overflows, where 1 / (1 + exp(−x)) would.
    return np.exp(-np.logaddexp(0, -lead))


def _compute_probabilities_and_tolerances(
    probability_module: ProbabilityModule, batch: Images, task: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Compute the version's own probabilities [N, C], and the allowed difference of each."""
    moved = list[Tensor]()

    def predict_and_record_rounding_bounds(network: Network, x: Tensor, head: int | None) -> Tensor:
        moved.append(
            probability_module.method.bound_score_rounding(network, x, head).cpu()
            / probability_module.temperature
        )
        return probability_module.method.predict_logits(network, x, head)

    scoring = predicting.SoftmaxScoring(
        predict_and_record_rounding_bounds, probability_module.temperature
    )
    _, ours = predicting.predict_images(
        probability_module.network, batch, task, probability_module.normalise, scoring=scoring
    )
    minimum = (
        LINEARISED_TOLERANCE if probability_module.network.family == "linearised" else TOLERANCE
    )
    return ours, compute_allowed_probability_differences(ours, torch.cat(moved).numpy(), minimum)


def _require_matching_probabilities(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], may: NDArray[np.float64]
) -> None:
    """Raise ExportFailed if a graph's probabilities have another shape, are not finite, or differ
    too much.
    """
    # Comparisons with NaN are false, so NaN would pass the check of differences below.
    if ours.shape != theirs.shape or not np.isfinite(theirs).all():
        raise ExportFailed(
            "The graph's answers are no numbers, or too many or too few. Nothing was stored."
        )
    difference = np.abs(ours - theirs)
    if (difference > may).any():
        beyond = difference - may
        at = np.unravel_index(beyond.argmax(), beyond.shape)
        raise ExportFailed(
            f"The graph answers otherwise than the version: a probability differs by "
            f"{difference[at]:.2g}, and {may[at]:.2g} is allowed. Nothing was stored."
            + (UNCHECKED if may[at] >= MOST_TOLERANCE else "")
        )


def _require_sure_output_to_match(
    probabilities: NDArray[np.float32], sure: NDArray[np.bool_], sure_threshold: float
) -> None:
    """Raise ExportFailed unless a graph marks as sure exactly what its own probabilities imply."""
    # In float32, in which the graph compares.
    if not np.array_equal(sure, probabilities.max(1) >= np.float32(sure_threshold)):
        raise ExportFailed(
            "The graph calls other answers sure than the version does. Nothing was stored."
        )


def _iterate_check_batches(
    probability_module: ProbabilityModule,
    noise: Sequence[Images],
    held_out: Mapping[int, Images],
    max_images: int,
) -> Iterator[tuple[Images, list[int | None]]]:
    """Yield batches of images for the check of an exported graph, with the heads to compare on
    each.
    """
    for batch in noise:
        yield batch, list(probability_module.tasks)
    # An equal number of images of each task, within the limit for all.
    share, batch_size = max(1, max_images // max(1, len(held_out))), max(BATCHES)
    for task, images in list(held_out.items())[:max_images]:
        heads: list[int | None] = [
            head for head in (task, None) if head in probability_module.tasks
        ]
        for start in range(0, min(share, len(images)), batch_size):
            yield images[start : min(share, start + batch_size)], heads


def load_onnx_graph_runner(path: Path, threads: int) -> Run:
    """Load an exported graph into ONNX Runtime; return the function that runs it.

    Raises ExportFailed if it cannot be loaded. The returned function raises it if it cannot be run.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # A thread that spins while it waits for work would occupy the core of a decoder or of the API.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Fatal alone: its warnings would go to a protocol's stderr or a job's log.
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _build_onnx_runtime_error(error) from error
    names = [output.name for output in session.get_outputs()]

    def run_graph(images: Images) -> dict[str, NDArray[np.float32]]:
        try:
            outputs = session.run(None, {INPUT: np.ascontiguousarray(images.transpose(0, 3, 1, 2))})
        except Exception as error:
            raise _build_onnx_runtime_error(error) from error
        return dict(zip(names, outputs, strict=True))

    return run_graph


def _build_onnx_runtime_error(error: Exception) -> ExportFailed:
    """Build the error for an exported graph that ONNX Runtime cannot run."""
    first_line = str(error).strip().partition("\n")[0]
    return ExportFailed(
        f"ONNX Runtime cannot run the graph ({type(error).__name__}: {first_line[:300]})"
    )
