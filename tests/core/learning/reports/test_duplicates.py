"""Bursts: frames of one scene are judged together, so that a figure says what holds for
new images.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from core.ingest.findings.traces import ImageFingerprints, write_image_fingerprints
from core.learning.analytic import discriminant
from core.learning.data.dataset import Dataset
from core.learning.data.held_out_features import FeatureDataset
from core.learning.evaluation.baselines import (
    FOLDS,
    assign_cross_validation_folds,
    cross_validate_feature_baselines,
    mask_images_usable_for_cross_validation,
    sum_features_by_class,
)
from core.learning.evaluation.probe import mask_correct_knn_predictions
from core.learning.reports.duplicates import group_near_duplicates, read_or_compute_hashes
from core.learning.reports.suspicious_labels import find_images_with_suspect_labels
from core.statistics import near_duplicates

CLASSES, FRAMES, WIDTH = 3, 8, 256


class Bursts(NamedTuple):
    """images: uint8 [N, 32, 32, 3]; labels, scenes: int64 [N]; features: float32 [N, 256], by
    random weights.
    """

    images: np.ndarray
    labels: torch.Tensor
    scenes: torch.Tensor
    features: torch.Tensor

    def groups(self) -> torch.Tensor:
        return group_near_duplicates(
            [(len(self.images), near_duplicates.hash_images_perceptually(self.images))]
        )


def draw_bursts(scenes: int, frames: int, seed: int) -> Bursts:
    """Draw scenes of three classes that only a tint distinguishes, each in some frames with
    different light and noise.
    """
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (scenes, 6, 6, 3), dtype=np.uint8)
    still = [
        np.asarray(Image.fromarray(one).resize((32, 32), Image.Resampling.BICUBIC))
        for one in coarse
    ]
    scene = np.repeat(np.arange(scenes), frames)
    images = np.stack([still[one] for one in scene]) + rng.normal(0, 4, (len(scene), 32, 32, 3))
    images += rng.integers(-6, 7, (len(scene), 1, 1, 1))
    images[np.arange(len(scene)), ..., scene % CLASSES] += 12
    found = np.clip(images, 0, 255).astype(np.uint8)
    weights = torch.randn(32 * 32 * 3, WIDTH, generator=torch.Generator().manual_seed(0)) / 55
    features = torch.relu((torch.from_numpy(found).float().flatten(1) / 127.5 - 1) @ weights)
    return Bursts(found, torch.from_numpy(scene % CLASSES), torch.from_numpy(scene), features)


@pytest.fixture(scope="module")
def bursts() -> Bursts:
    return draw_bursts(30, FRAMES, 0)


@pytest.fixture(scope="module")
def truth(bursts: Bursts) -> float:
    """Accuracy on 600 new scenes of the discriminant that all bursts make."""
    new = draw_bursts(600, 1, 100)
    sums = sum_features_by_class(bursts.features.double(), bursts.labels, CLASSES, wide=False)
    answers = discriminant.solve_linear_discriminant_analysis(sums)(new.features.double()).argmax(1)
    return float((answers == new.labels).float().mean())


def test_folds_of_single_frames_promise_what_new_images_do_not_keep(
    bursts: Bursts, truth: float
) -> None:
    leaking = cross_validate_feature_baselines(bursts.features, bursts.labels).lda
    grouped = cross_validate_feature_baselines(
        bursts.features, bursts.labels, groups=bursts.groups()
    ).lda
    assert leaking is not None and grouped is not None
    assert leaking.float().mean() > 0.95
    assert truth < 0.5 and float(grouped.float().mean()) < truth + 0.1


def test_frames_of_one_burst_have_no_vote_on_each_other(bursts: Bursts) -> None:
    k = FRAMES
    assert mask_correct_knn_predictions(bursts.features, bursts.labels, k).float().mean() > 0.95
    found = mask_correct_knn_predictions(bursts.features, bursts.labels, k, bursts.groups())
    units = bursts.features / bursts.features.norm(dim=1, keepdim=True)
    near_each = (
        (units @ units.T).masked_fill(bursts.scenes[:, None] == bursts.scenes, -1).topk(k).indices
    )
    votes = [torch.bincount(bursts.labels[row], minlength=CLASSES).argmax() for row in near_each]
    assert found.tolist() == (torch.stack(votes) == bursts.labels).tolist()


def test_where_all_images_are_alike_none_has_a_neighbour() -> None:
    same = torch.zeros(4, dtype=torch.int64)
    assert not mask_correct_knn_predictions(
        torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), 1, same
    ).any()


def test_a_group_is_one_scene_and_joined_through_the_frames_between() -> None:
    bits = [[0, 0], [(1 << 7) - 1, 0], [(1 << 14) - 1, 0], [0, (1 << 40) - 1], [0, 0]]
    found = near_duplicates.group_near_duplicate_hashes(np.array(bits, np.uint64))
    assert found[0] == found[1] == found[2] == found[4] != found[3]


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_those_that_joining_all_pairs_makes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**63, (20, 2), dtype=np.int64).astype(np.uint64)
    hashes = centres[rng.integers(0, 20, 120)].copy()
    for row in hashes:
        row[0] ^= np.uint64(sum(1 << int(bit) for bit in rng.choice(64, 5, replace=False)))
    slowly = np.arange(len(hashes))
    for one in range(len(hashes)):
        for other in range(one):
            if (
                near_duplicates.compute_hamming_distances(hashes[one], hashes[other])
                <= near_duplicates.MOST_BITS
            ):
                slowly[slowly == slowly[one]] = slowly[other]
    found = near_duplicates.group_near_duplicate_hashes(hashes)
    assert ((found[:, None] == found) == (slowly[:, None] == slowly)).all()


def test_near_duplicates_of_a_class_share_a_fold_and_single_images_keep_theirs(
    bursts: Bursts,
) -> None:
    fold = assign_cross_validation_folds(bursts.labels, bursts.groups())
    assert {len(set(fold[bursts.scenes == scene].tolist())) for scene in range(30)} == {1}
    assert torch.bincount(fold, minlength=FOLDS).tolist() == [48] * FOLDS
    alone = torch.arange(len(bursts.labels))
    assert (
        assign_cross_validation_folds(bursts.labels, alone).tolist()
        == assign_cross_validation_folds(bursts.labels).tolist()
    )


def test_a_class_of_one_burst_is_left_out() -> None:
    labels, groups = (
        torch.tensor([0] * 4 + [1] * 4 + [2] * 4),
        torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4]),
    )
    assert mask_images_usable_for_cross_validation(labels, 2, groups) is not None
    assert (
        mask_images_usable_for_cross_validation(labels, 2, groups).tolist()
        == [True] * 8 + [False] * 4
    )  # type: ignore[union-attr]
    assert mask_images_usable_for_cross_validation(labels[4:], 2, groups[4:]) is None


def test_a_burst_with_a_wrong_label_does_not_vouch_for_itself() -> None:
    rng = np.random.default_rng(3)
    labels = torch.arange(240) // FRAMES % CLASSES
    features = torch.from_numpy(rng.normal(0, 1, (30, WIDTH)).repeat(FRAMES, 0)).float()
    features[torch.arange(240), labels] += 6
    groups, wrong = torch.arange(240) // FRAMES, slice(0, FRAMES)
    labels[wrong] = (labels[wrong] + 1) % CLASSES
    generator = torch.Generator()
    alone = find_images_with_suspect_labels(features, labels, generator).rows.tolist()
    together = find_images_with_suspect_labels(features, labels, generator, groups).rows.tolist()
    assert set(alone).isdisjoint(range(FRAMES)) and set(together) == set(range(FRAMES))


def test_hashes_are_those_of_the_task_else_those_of_the_images(
    tmp_path: Path, bursts: Bursts
) -> None:
    data = Dataset(torch.from_numpy(bursts.images[:9]), bursts.labels[:9], ["a", "b", "c"])
    kept = np.arange(18, dtype=np.uint64).reshape(9, 2)
    path = tmp_path / "traces.safetensors"
    write_image_fingerprints(
        path, ImageFingerprints(kept[:0], kept, [f"{row}.png" for row in range(9)])
    )
    found = read_or_compute_hashes(path, "held_out", data)
    assert found is not None and (found == kept).all()
    own = near_duplicates.hash_images_perceptually(bursts.images[:9])
    for traces, part in ((None, "held_out"), (path, "train"), (tmp_path / "none", "train")):
        found = read_or_compute_hashes(traces, part, data)
        assert found is not None and (found == own).all()
    assert (
        read_or_compute_hashes(
            None, "train", FeatureDataset(bursts.features[:9], bursts.labels[:9], data.names)
        )
        is None
    )


def test_images_without_hashes_are_alone() -> None:
    same = np.zeros((2, 2), np.uint64)
    found = group_near_duplicates([(2, same), (2, None), (1, same[:1])]).tolist()
    assert found[0] == found[1] == found[4] and len(set(found)) == 3
