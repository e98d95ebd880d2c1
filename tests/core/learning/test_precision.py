"""Number formats: evaluation in full precision on every device."""

from collections.abc import Callable, Iterator

import pytest
import torch

from core.learning.data.dataset import Dataset
from core.learning.data.known_features import FeatureCachingInputNormaliser
from core.learning.evaluation import evaluate, predicting, probe
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.backbones.mlp import MlpBackbone
from core.learning.precision import InputNormaliser
from core.learning.reports.parent_predictions import (
    ParentPredictor,
    find_most_predicted_class_of_new_classes,
)

CPU = torch.device("cpu")
KNOWN = ("cat", "dog")
INPUTS = InputNormaliser(None, 1, CPU)


def make_dataset() -> Dataset:
    """Make six images of known classes and two of a new one."""
    images = torch.arange(8 * 4, dtype=torch.uint8).reshape(8, 2, 2, 1)
    return Dataset(images, torch.tensor([0, 1, 0, 1, 0, 1, 2, 2]), [*KNOWN, "elk"])


def make_known_dataset() -> Dataset:
    """Return the images of known classes alone."""
    return Dataset(make_dataset().images[:6], make_dataset().labels[:6], KNOWN)


def compute_losses(
    network: Network, x: torch.Tensor, y: torch.Tensor, task: int | None
) -> torch.Tensor:
    return network(x, task).square().sum(1)


PATHS: dict[str, Callable[[Network], object]] = {
    "answers on a task": lambda n: evaluate.predict_and_score_dataset(
        n, make_known_dataset(), 1, Network.forward, INPUTS
    ),
    "logits on a task": lambda n: evaluate.compute_task_logits(
        n, make_known_dataset(), 1, Network.forward, INPUTS
    ),
    "mean loss": lambda n: evaluate.compute_mean_loss(
        n, make_known_dataset(), 1, compute_losses, INPUTS
    ),
    "validation": lambda n: evaluate.score_network_on_images(
        n,
        evaluate.EvaluationImages(make_known_dataset().images, make_known_dataset().labels),
        None,
        Network.forward,
        INPUTS,
    ),
    "features": lambda n: probe.compute_image_features(n, make_known_dataset().images, INPUTS),
    "known features": lambda n: FeatureCachingInputNormaliser(None, 1, CPU).cache_dataset_features(
        n, make_known_dataset().images, lambda: None
    ),
    "predicting": lambda n: predicting.predict_images(n, make_known_dataset().images.numpy()),
    "data report": lambda n: find_most_predicted_class_of_new_classes(
        ParentPredictor(n, Network.forward, INPUTS, 1.0, 1, None), make_dataset()
    ),
}


@pytest.fixture
def precisions() -> Iterator[Callable[[], tuple[str, str]]]:
    """The formats of products and convolutions on CUDA, which begin with TF32."""
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = conv.fp32_precision = "tf32"
    yield lambda: (matmul.fp32_precision, conv.fp32_precision)
    matmul.fp32_precision, conv.fp32_precision = before


@pytest.mark.parametrize("path", PATHS)
def test_evaluation_has_full_precision_where_cuda_would_use_tf32(
    path: str, precisions: Callable[[], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build_network(
        {"name": "mlp", "hidden": [3]}, ImageSpec(2, 1), "class", HeadSpec(KNOWN), seed=1
    )
    seen: list[tuple[str, str]] = []
    forward = MlpBackbone.forward

    def record_precision_and_forward(self: MlpBackbone, x: torch.Tensor) -> torch.Tensor:
        seen.append(precisions())
        return forward(self, x)

    monkeypatch.setattr(MlpBackbone, "forward", record_precision_and_forward)
    PATHS[path](network)
    assert set(seen) == {("ieee", "ieee")}
    assert precisions() == ("tf32", "tf32")


def test_neighbours_are_compared_in_full_precision(
    precisions: Callable[[], tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(
        torch.Tensor, "topk", lambda *a, **k: (seen.append(precisions()), topk(*a, **k))[1]
    )
    probe.mask_correct_knn_predictions(torch.eye(4), torch.tensor([0, 0, 1, 1]), 1)
    assert seen == [("ieee", "ieee")]
