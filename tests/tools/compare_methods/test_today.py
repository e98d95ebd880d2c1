"""The rows of today on easy images and a small network: what they learn, forget and keep."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from core.contract.architecture import Normalisation
from core.ingest.decoding.resizing import SquareResizingSettings
from core.learning.networks import ImageSpec, build_network
from tools.compare_methods.base import ComparisonBase
from tools.compare_methods.pixels import DecodedLabelledImages, SplitPixels
from tools.compare_methods.today import BaselineUpdates
from tools.compare_methods.training import (
    BATCH,
    _predict_labels,
    extract_features,
    train_all_weights,
)

CLASSES, SIZE = 4, 8
NETWORK = {"name": "mlp", "hidden": [32]}


@pytest.fixture(scope="module")
def base() -> ComparisonBase:
    tensors = build_network(NETWORK, ImageSpec(SIZE, 3), "class", seed=0).backbone.state_dict()
    normalise = Normalisation(mean=[0.5] * 3, std=[0.25] * 3)
    return ComparisonBase("small", NETWORK, SIZE, SquareResizingSettings(), normalise, tensors)


def draw_image_part(count: int, seed: int) -> DecodedLabelledImages:
    """Draw `count` noisy images of each class, whose brightest quarter says the class."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), count)
    pixels = draw.integers(0, 160, (len(labels), SIZE, SIZE, 3)).astype(np.uint8)
    half = SIZE // 2
    for row, label in enumerate(labels.tolist()):
        down, right = divmod(label, 2)
        pixels[row, down * half : (down + 1) * half, right * half : (right + 1) * half] += 90
    return DecodedLabelledImages(pixels, labels, list(range(len(labels))))


@pytest.fixture(scope="module")
def data() -> SplitPixels:
    names = [f"class-{label}" for label in range(CLASSES)]
    return SplitPixels(
        names, [[0, 1], [2, 3]], draw_image_part(40, 0), draw_image_part(15, 1), 0.001
    )


def make_baseline(data: SplitPixels, base: ComparisonBase, epochs: int = 20) -> BaselineUpdates:
    return BaselineUpdates(data, base, epochs, 0, lambda line: None)


def test_lda_is_that_of_scikit_learn_on_the_features_of_all_batches(
    data: SplitPixels, base: ComparisonBase
) -> None:
    outcome = make_baseline(data, base).fit_discriminant_analysis()
    network = base.build_network(0)
    network.eval()
    with torch.no_grad():
        learned, held_out = (
            network.features(base.build_input_conversion()(torch.from_numpy(part.pixels))).numpy()
            for part in (data.learned, data.held_out)
        )
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(
        learned, data.learned.labels
    )
    right = lda.predict(held_out) == data.held_out.labels
    assert outcome.accuracy == pytest.approx(right.mean())
    assert outcome.accuracy > 0.8 and outcome.images_kept == 0


def test_logistic_regression_knows_all_batches(data: SplitPixels, base: ComparisonBase) -> None:
    outcome = make_baseline(data, base).fit_logistic_regression()
    assert outcome.worst_class[1] > 0.6 and outcome.images_kept == 0


def test_fine_tuning_knows_the_last_batch_and_forgets_the_first(
    data: SplitPixels, base: ComparisonBase
) -> None:
    outcome = make_baseline(data, base).finetune_on_each_batch()
    shares = {name: right / total for name, (right, total) in outcome.per_class.items()}
    assert shares["class-2"] + shares["class-3"] > 1.6
    assert shares["class-0"] + shares["class-1"] < 1.2
    assert outcome.images_kept == 0


def test_full_retraining_knows_all_batches_and_keeps_the_images_of_the_first(
    data: SplitPixels, base: ComparisonBase
) -> None:
    outcome = make_baseline(data, base).retrain_on_all_batches()
    assert outcome.accuracy > 0.8 and outcome.images_kept == 80


def test_seconds_of_the_last_batch_include_its_decoding(
    base: ComparisonBase, data: SplitPixels
) -> None:
    slow = SplitPixels(data.classes, data.batches, data.learned, data.held_out, decode_s=1000.0)
    lda, full = (
        make_baseline(slow, base).fit_discriminant_analysis(),
        make_baseline(slow, base, epochs=1).retrain_on_all_batches(),
    )
    assert 80_000 <= lda.seconds < 160_000 <= full.seconds


def test_features_do_not_depend_on_how_images_are_cut(
    data: SplitPixels, base: ComparisonBase
) -> None:
    network, images = base.build_network(0), data.select_training_images_of_batches(slice(None))
    assert len(images) > BATCH and len(images) % BATCH == 0
    odd = data.select_training_images_of_batches(slice(0, 1))
    whole = extract_features(network, base.build_input_conversion(), images)
    assert torch.allclose(
        whole[odd.rows], extract_features(network, base.build_input_conversion(), odd), atol=1e-5
    )


def test_the_same_seed_trains_the_same_network(data: SplitPixels, base: ComparisonBase) -> None:
    answers = []
    for _ in range(2):
        network = base.build_network(0)
        network.add_task_classes(1, data.classes, "default", torch.Generator().manual_seed(0))
        train_all_weights(
            network,
            base.build_input_conversion(),
            data.select_training_images_of_batches(slice(None)),
            1,
            seed=3,
        )
        answers.append(
            _predict_labels(
                network, base.build_input_conversion(), data.all_held_out_images
            ).tolist()
        )
    assert answers[0] == answers[1]
