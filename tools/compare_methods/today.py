"""Usual updates: frozen features with scikit-learn's classifiers, fine-tuning, full retraining."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.learning.networks import Network
from tools.compare_methods.base import ComparisonBase
from tools.compare_methods.outcome import UpdateOutcome, count_correct_by_class
from tools.compare_methods.pixels import SplitPixels
from tools.compare_methods.training import (
    _predict_labels,
    extract_features,
    train_all_weights,
)

Features = npt.NDArray[np.float32]
MAX_ITERATIONS = 1000
LAST = slice(-1, None)
ALL = slice(None)


@dataclass
class BaselineUpdates:
    """Trains a classifier in the usual ways, as baselines to compare Perennial with.

    Attributes:
        data: the split.
        base: the base that they start from.
        epochs: epochs of each training.
        seed: seed of new heads and of the order of images.
        say: called with a line of progress.
    """

    data: SplitPixels
    base: ComparisonBase
    epochs: int
    seed: int
    say: Callable[[str], None]

    def fit_discriminant_analysis(self) -> UpdateOutcome:
        """Baseline: fit a linear discriminant analysis to frozen features of all batches."""
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        # Shrinkage, because few images give a singular covariance of many features.
        return self._fit_and_evaluate_classifier(
            "lda", LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        )

    def fit_logistic_regression(self) -> UpdateOutcome:
        """Baseline: fit a logistic regression to frozen features of all batches."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        # Scaled, because the solver converges slowly on features of different sizes.
        return self._fit_and_evaluate_classifier(
            "logistic", make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITERATIONS))
        )

    def finetune_on_each_batch(self) -> UpdateOutcome:
        """Baseline: fine-tune the network on each new batch alone."""
        network, seconds = self._build_network(), 0.0
        for number in range(len(self.data.batches)):
            start_time = time.perf_counter()
            current_batch = slice(number, number + 1)
            self._add_classes_to_network(network, current_batch, number)
            train_all_weights(
                network,
                self.base.build_input_conversion(),
                self.data.select_training_images_of_batches(current_batch),
                self.epochs,
                self.seed + number,
            )
            # Overwritten by each batch: the figure is the time of the last update alone.
            seconds = time.perf_counter() - start_time
            self.say(
                f"finetune: batch {number + 1} of {len(self.data.batches)} learned in "
                f"{seconds:.0f} s"
            )
        return self._evaluate_on_held_out_images(
            "finetune", network, seconds + self._estimate_decoding_seconds(LAST), 0
        )

    def retrain_on_all_batches(self) -> UpdateOutcome:
        """Baseline: retrain the network from the base weights on all batches.

        Each retraining starts from the base. Retraining after earlier batches would change no
        figure, so it is left out.
        """
        network = self._build_network()
        start_time = time.perf_counter()
        self._add_classes_to_network(network, ALL, 0)
        train_all_weights(
            network,
            self.base.build_input_conversion(),
            self.data.select_training_images_of_batches(ALL),
            self.epochs,
            self.seed,
        )
        seconds = time.perf_counter() - start_time
        self.say(f"full: all batches learned in {seconds:.0f} s")
        images_kept = len(self.data.select_training_images_of_batches(slice(None, -1)))
        return self._evaluate_on_held_out_images(
            "full", network, seconds + self._estimate_decoding_seconds(ALL), images_kept
        )

    def _fit_and_evaluate_classifier(self, row: str, classifier: Any) -> UpdateOutcome:
        features, of_last = self._features_and_seconds_of_last_batch
        start_time = time.perf_counter()
        classifier.fit(features, self.data.learned.labels)
        fit = time.perf_counter() - start_time
        self.say(f"{row}: fitted to {len(features)} features in {fit:.1f} s")
        predicted_labels = np.asarray(classifier.predict(self._held_out_features), np.int64)
        right = count_correct_by_class(
            self.data.classes, predicted_labels, self.data.held_out.labels
        )
        return UpdateOutcome(row, right, self._estimate_decoding_seconds(LAST) + of_last + fit, 0)

    @cached_property
    def _features_and_seconds_of_last_batch(self) -> tuple[Features, float]:
        """Features of all training images, and the seconds for those of the last batch."""
        network, count = self._build_network(), len(self.data.learned.labels)
        features, seconds = np.empty((count, network.backbone.width), np.float32), 0.0
        for number in range(len(self.data.batches)):
            # Batch by batch, because the seconds of the last one count.
            images = self.data.select_training_images_of_batches(slice(number, number + 1))
            start_time = time.perf_counter()
            features[images.rows] = extract_features(
                network, self.base.build_input_conversion(), images
            ).numpy()
            seconds = time.perf_counter() - start_time
            self.say(f"features: batch {number + 1} of {len(self.data.batches)} in {seconds:.0f} s")
        return features, seconds

    @cached_property
    def _held_out_features(self) -> Features:
        images = self.data.all_held_out_images
        features: Features = extract_features(
            self._build_network(), self.base.build_input_conversion(), images
        ).numpy()
        return features

    def _build_network(self) -> Network:
        return self.base.build_network(self.seed)

    def _add_classes_to_network(self, network: Network, batches: slice, task: int) -> None:
        classes = [
            self.data.classes[label] for batch in self.data.batches[batches] for label in batch
        ]
        generator = torch.Generator().manual_seed(self.seed + task)
        network.add_task_classes(task + 1, classes, "default", generator)

    def _estimate_decoding_seconds(self, batches: slice) -> float:
        # All images were decoded beforehand; an update on its own would have to decode these.
        return self.data.decode_s * len(self.data.select_training_images_of_batches(batches))

    def _evaluate_on_held_out_images(
        self, row: str, network: Network, seconds: float, images_kept: int
    ) -> UpdateOutcome:
        predicted_labels = _predict_labels(
            network, self.base.build_input_conversion(), self.data.all_held_out_images
        )
        right = count_correct_by_class(
            self.data.classes, predicted_labels, self.data.held_out.labels
        )
        return UpdateOutcome(row, right, seconds, images_kept)
