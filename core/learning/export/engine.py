"""Faster arithmetic in place of a version's network, such as its graph, with the same classes.

Its probabilities may differ from the version's own by a tolerance. That is enough to swap two
classes that are nearly equally probable, or to cross the threshold of sure answers. Such images are
answered by the network instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.contract.responses.versions.predict import EngineName
from core.learning.export.check import Images

Probabilities = NDArray[np.float32]


@dataclass(frozen=True)
class ExportedPredictionEngine:
    """An engine, such as an ONNX graph, that predicts in place of a version's network.

    Attributes:
        name: its name in responses.
        run: from images and the task to probabilities. Raises ExportFailed where it cannot answer.
        tolerance: largest difference of a probability from the version's own.
    """

    name: EngineName
    run: Callable[[Images, int | None], Probabilities]
    tolerance: float

    def predict_probabilities(
        self,
        images: Images,
        task: int | None,
        predict_exactly: Callable[[Images], Probabilities],
        sure_from: float | None = None,
    ) -> Probabilities:
        """Predict probabilities [N, classes] by the engine, with the same best classes as the
        network's.

        Args:
            images: uint8 [N, size, size, channels].
            task: the head in the task scenario.
            predict_exactly: returns the version's own probabilities of given images, by its
                network.
            sure_from: least probability of a sure answer; None: there is no such threshold.

        Raises:
            ExportFailed: as `run`.
        """
        probabilities = self.run(images, task)
        unclear = mask_images_undecided_within_tolerance(probabilities, self.tolerance, sure_from)
        if unclear.any():
            # Only these: the network is slower, and few images are unclear.
            probabilities[unclear] = predict_exactly(images[unclear])
        return probabilities


def mask_images_undecided_within_tolerance(
    probabilities: Probabilities, tolerance: float, sure_from: float | None
) -> NDArray[np.bool_]:
    """Find images whose predicted class a difference of `tolerance` may change, bool [N].

    The result is the best class, and whether it is sure. Both of two probabilities may differ, in
    opposite directions. An image with a probability that is no number is unclear, too.
    """
    # In float64: differences of nearly equal probabilities are compared.
    best = np.sort(probabilities.astype(np.float64), axis=1)[:, ::-1]
    # With one class there is nothing to confuse it with.
    lead = best[:, 0] - best[:, 1] if best.shape[1] > 1 else np.full(len(best), np.inf)
    unclear = ~(np.isfinite(probabilities).all(axis=1) & (lead > 2 * tolerance))
    if sure_from is not None:
        unclear |= np.abs(best[:, 0] - sure_from) <= tolerance
    return unclear
