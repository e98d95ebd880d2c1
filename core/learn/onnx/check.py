"""Whether a graph in ONNX Runtime says what the version says, before anybody gets it.

Both see the same images, of noise and of the version's own tasks. Where no probability differs by more than the
tolerance, the most probable class is the same wherever it leads by more than twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.learn import predicting
from core.learn.onnx.answers import Answers
from core.learn.onnx.graph import ExportFailed
from core.protocol.architecture import Normalisation
from core.protocol.export_job import INPUT, output_name

BATCHES = (1, 3, 17)
MAX_HELD_OUT = 64
"""Held-out images at most, of all tasks together."""
LINEARISED_TOLERANCE = 1e-3
"""A linearised network adds up a value and its derivative, which may be large and of opposite signs."""
_SEED = 0

Images = NDArray[np.uint8]
Run = Callable[[Images], dict[str, NDArray[np.float32]]]
"""From images [N, size, size, channels] to the graph's outputs by name."""


@dataclass(frozen=True)
class Checked:
    """The largest difference of a probability, what it may be, and how many images were seen."""

    max_difference: float
    tolerance: float
    images: int
    held_out_images: int


def check(
    path: Path,
    answers: Answers,
    normalise: Normalisation | None,
    image: tuple[int, int],
    held_out: Mapping[int, Images],
    threads: int,
) -> Checked:
    """Compare a graph with the version that it was made of.

    Args:
        image: size and channels.
        held_out: task to images [N, size, size, channels] that the version knows.

    Raises:
        ExportFailed: ONNX Runtime cannot run it for some size of batch, or it answers otherwise.
    """
    size, channels = image
    rng = np.random.default_rng(_SEED)
    noise = [rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8) for count in BATCHES]
    tolerance = tolerance_of(answers)
    run = _session(path, threads)
    worst, seen = 0.0, 0
    for batch, tasks in _questions(answers, noise, held_out):
        found = run(batch)
        for task in tasks:
            _, ours = predicting.predict(
                answers.network, batch, task, normalise, scores=answers.method.predict_logits
            )
            worst = max(worst, _difference(ours, found[output_name(task)]))
        seen += len(batch)
    if not worst <= tolerance:
        raise ExportFailed(
            f"The graph answers otherwise than the version: a probability differs by {worst:.2g}, and {tolerance:g} is "
            "allowed. Nothing was stored."
        )
    random = sum(BATCHES)
    return Checked(worst, tolerance, random, seen - random)


def tolerance_of(answers: Answers) -> float:
    """How much a probability of the graph may differ: what rounding features to float32 alone may do."""
    if answers.network.family == "linearised":
        return LINEARISED_TOLERANCE
    return answers.method.probability_rounding


def _questions(
    answers: Answers, noise: Sequence[Images], held_out: Mapping[int, Images]
) -> Iterator[tuple[Images, list[int | None]]]:
    """Batches, and the heads that are asked about each."""
    for batch in noise:
        yield batch, list(answers.tasks)
    share, most = max(1, MAX_HELD_OUT // max(1, len(held_out))), max(BATCHES)
    for task, images in list(held_out.items())[:MAX_HELD_OUT]:
        heads: list[int | None] = [head for head in (task, None) if head in answers.tasks]
        for start in range(0, min(share, len(images)), most):
            yield images[start : min(share, start + most)], heads


def _session(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _unusable(error) from error
    names = [output.name for output in session.get_outputs()]

    def run(images: Images) -> dict[str, NDArray[np.float32]]:
        try:
            found = session.run(None, {INPUT: np.ascontiguousarray(images.transpose(0, 3, 1, 2))})
        except Exception as error:
            raise _unusable(error) from error
        return dict(zip(names, found, strict=True))

    return run


def _unusable(error: Exception) -> ExportFailed:
    line = str(error).strip().partition("\n")[0]
    return ExportFailed(f"ONNX Runtime cannot run the graph ({type(error).__name__}: {line[:300]})")


def _difference(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """The largest; infinite where shapes differ or a number is none."""
    if ours.shape != theirs.shape or not np.isfinite(theirs).all():
        return float("inf")
    return float(np.abs(ours - theirs).max(initial=0.0))
