"""The score of a trial on selection images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.contract.jobs.job_spec import SelectionDataset
from core.ingest.dataset import write_image_dataset_file
from core.learning.data.dataset import Dataset
from core.learning.evaluation import trial_score


class Parts:
    """Datasets by their files."""

    def read_dataset(self, path: Path, classes: list[str]) -> Dataset:
        return Dataset.read_dataset_file(path, classes)


def write_part(folder: Path, task: int, labels: list[int], classes: list[str]) -> SelectionDataset:
    path = folder / f"{task}.safetensors"
    images = np.zeros((len(labels), 2, 2, 1), np.uint8)
    write_image_dataset_file(path, np.array(labels, np.int64), (2, 2, 1), [images])
    return SelectionDataset(task=task, classes=classes, path=path)


@pytest.mark.parametrize(("right", "value"), [([4, 1], 0.75), ([4, 2], 1.0), ([0, 0], 0.0)])
def test_the_score_is_the_mean_over_tasks_and_never_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: list[int], value: float
) -> None:
    parts = [
        write_part(tmp_path, 1, [0, 1, 0, 1], ["a", "b"]),
        write_part(tmp_path, 2, [0, 1], ["c", "d"]),
    ]
    counts = dict(zip((1, 2), right, strict=True))

    def mark_first_images_correct(network: Any, data: Dataset, task: int, *_: Any) -> Tensor:
        return torch.arange(len(data)) < counts[task]

    monkeypatch.setattr(trial_score, "can_predict_task", lambda *_: True)
    monkeypatch.setattr(trial_score, "score_network_on_task", mark_first_images_correct)
    nothing: Any = None
    method: Any = type("Some", (), {"predict_logits": None})
    found = trial_score._score_trial_on_selection_images(nothing, method, nothing, parts, Parts())  # type: ignore[arg-type]
    assert found is not None
    assert (found.value, found.images, found.source) == (value, 6, "selection")
    assert found.tasks == {"1": [right[0], 4], "2": [right[1], 2]}
    expected = [(n + 1) / (m + 2) * (m - n + 1) / (m + 2) / m for n, m in found.tasks.values()]
    assert found.error == pytest.approx(sum(expected) ** 0.5 / 2)
    assert found.error > 0
