"""The k-NN probe: against a slow obvious version, and what it must not depend on."""

import math

import pytest
import torch

from core.learning.data.dataset import Dataset
from core.learning.evaluation.probe import (
    ALL_IMAGES,
    VersionKnnProbe,
    choose_evenly_spaced_rows,
    choose_neighbour_count,
    choose_probe_image_limit,
    compute_image_features,
    mask_correct_knn_predictions,
)
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.precision import InputNormaliser

MLP = {"name": "mlp", "hidden": [7]}
IMAGE = ImageSpec(4, 1)
INPUTS = InputNormaliser(None, 1, torch.device("cpu"))


def make_dataset(n: int, names: tuple[str, ...], seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 4, 4, 1), generator=generator).to(torch.uint8)
    return Dataset(images, torch.arange(n) % len(names), names)


def make_network(scenario: str = "class", heads: HeadSpec | None = None):
    return build_network(MLP, IMAGE, scenario, heads or HeadSpec(("ant", "bee")), seed=1)


def classify_slowly(points: torch.Tensor, labels: list[int], k: int) -> list[bool]:
    """Return whether each point is classified correctly: cosines by hand, neighbours by sorting,
    votes by counting.
    """
    rows = points.double().tolist()
    right = []
    for i, a in enumerate(rows):
        scored = []
        for j, b in enumerate(rows):
            if i != j:
                dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
                scored.append((-dot / (math.hypot(*a) * math.hypot(*b)), j))
        near = [labels[j] for _, j in sorted(scored)[:k]]
        right.append(min(set(near), key=lambda c: (-near.count(c), c)) == labels[i])
    return right


@pytest.mark.parametrize("k", [1, 2, 5, 29])
def test_leave_one_out_equals_a_slow_obvious_version(k) -> None:
    generator = torch.Generator().manual_seed(3)
    points = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (30,), generator=generator)
    assert mask_correct_knn_predictions(points, labels, k).tolist() == classify_slowly(
        points, labels.tolist(), k
    )


def test_an_image_is_not_its_own_neighbour() -> None:
    """Each point's nearest other one is of the other class."""
    points = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    assert not mask_correct_knn_predictions(points, torch.tensor([0, 1, 0, 1]), 1).any()


def test_the_length_of_features_does_not_matter() -> None:
    points = torch.tensor([[1.0, 0.1], [9.0, 0.0], [0.0, 0.5], [0.2, 7.0]])
    assert mask_correct_knn_predictions(points, torch.tensor([0, 0, 1, 1]), 1).all()


def test_a_tied_vote_goes_to_the_first_class() -> None:
    points = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]])
    labels = torch.tensor([0, 0, 1])  # the first point's neighbours are one of each
    assert mask_correct_knn_predictions(points, labels, 2).tolist() == [True, True, False]


@pytest.mark.parametrize(("sizes", "k"), [((4, 4), 2), ((1, 1), 1), ((400, 400), 20), ((9, 1), 2)])
def test_the_neighbours_are_half_of_a_class_at_most(sizes, k) -> None:
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(sizes)])
    assert choose_neighbour_count(labels) == k


def test_rows_are_spread_evenly_over_the_part() -> None:
    assert choose_evenly_spaced_rows(10, 4).tolist() == [0, 2, 5, 7]
    assert (
        choose_evenly_spaced_rows(3, 4).tolist() == [0, 1, 2]
        and choose_evenly_spaced_rows(0, 4).numel() == 0
    )


def test_random_features_are_near_chance_and_separable_ones_perfect() -> None:
    part = make_dataset(200, ("ant", "bee"))
    correct, total = VersionKnnProbe(make_network(), 1, INPUTS).probe_task(1, part)
    assert total == 200 and 0.3 < correct / total < 0.7
    part.images.div_(32, rounding_mode="floor")
    part.images[part.labels == 1] += 200
    assert VersionKnnProbe(make_network(), 1, INPUTS).probe_task(1, part) == [200, 200]


def test_the_head_does_not_matter_and_no_head_is_needed() -> None:
    part, found = make_dataset(60, ("ant", "bee")), make_network()
    counts = VersionKnnProbe(found, 1, INPUTS).probe_task(1, part)
    torch.nn.init.normal_(found.head.weight)
    assert VersionKnnProbe(found, 1, INPUTS).probe_task(1, part) == counts
    assert (
        VersionKnnProbe(make_network("task", HeadSpec()), 1, INPUTS).probe_task(1, part) == counts
    )


def test_the_probe_leaves_modes_and_statistics_alone() -> None:
    found = build_network({"name": "resnet20"}, ImageSpec(8, 1), "class", HeadSpec(), seed=1)
    found.train()
    before = {name: t.clone() for name, t in found.state_dict().items()}
    compute_image_features(found, torch.zeros(4, 8, 8, 1, dtype=torch.uint8), INPUTS)
    assert all(module.training for module in found.modules())
    assert all(torch.equal(t, before[name]) for name, t in found.state_dict().items())


def test_all_tasks_together_share_classes_except_with_a_head_each() -> None:
    """The same images under the same name twice: each finds its twin, which is of its class or is
    not.
    """
    parts = {1: make_dataset(8, ("ant", "bee")), 2: make_dataset(8, ("ant", "bee"))}
    counts = {}
    for scenario in ("class", "task"):
        probe = VersionKnnProbe(make_network(scenario), 2, INPUTS)
        for task, part in parts.items():
            probe.probe_task(task, part)
        counts[scenario] = probe.probe_all_tasks_together()
    assert counts["class"][1] == counts["task"][1] == 16
    assert counts["task"][0] < counts["class"][0]


def test_many_tasks_share_a_bounded_number_of_images() -> None:
    probe = VersionKnnProbe(make_network(), ALL_IMAGES // 10, INPUTS)
    assert probe.probe_task(1, make_dataset(50, ("ant", "bee")))[1] == 50
    assert probe.probe_all_tasks_together()[1] == 10


@pytest.mark.parametrize(
    ("classes", "images"), [(2, 4000), (200, 4000), (300, 6000), (400, 8000), (2000, 8000)]
)
def test_more_images_are_compared_for_more_classes_and_not_for_more_tasks(
    classes: int, images: int
) -> None:
    assert choose_probe_image_limit(classes) == images
    probe = VersionKnnProbe(make_network(), images // 10, INPUTS, all_images=images)
    probe.probe_task(1, make_dataset(50, ("ant", "bee")))
    assert probe.probe_all_tasks_together()[1] == 10


def test_one_image_has_no_neighbour_and_no_count() -> None:
    probe = VersionKnnProbe(make_network(), 1, INPUTS)
    assert probe.probe_all_tasks_together() == [0, 0]
    assert (
        probe.probe_task(1, make_dataset(1, ("ant",))) == [0, 0] == probe.probe_all_tasks_together()
    )


@pytest.mark.parametrize(("measured", "reused"), [({1: (9, 30)}, True), ({1: (9, 31)}, False)])
def test_counts_of_the_same_features_are_reused_while_no_image_is_missing(
    measured: dict[int, tuple[int, int]], reused: bool
) -> None:
    part = make_dataset(30, ("ant", "bee"))
    counted = VersionKnnProbe(make_network(), 1, INPUTS)
    probe = VersionKnnProbe(make_network(), 1, INPUTS, measured)
    own = counted.probe_task(1, part)
    assert own != [9, 30]
    assert probe.probe_task(1, part) == ([9, 30] if reused else own)
    assert probe.probe_all_tasks_together() == counted.probe_all_tasks_together()


def test_groups_of_alike_images_have_no_vote_as_when_all_are_compared() -> None:
    generator = torch.Generator().manual_seed(5)
    points = torch.randn(1500, 4, generator=generator)
    labels = torch.randint(0, 3, (1500,), generator=generator)
    groups = torch.randint(0, 1300, (1500,), generator=generator)
    unit = torch.nn.functional.normalize(points, dim=1)
    close = (unit @ unit.T).masked_fill(groups[:, None] == groups, -torch.inf)
    votes = torch.nn.functional.one_hot(labels[close.topk(5).indices], 3).sum(1)
    assert torch.equal(
        mask_correct_knn_predictions(points, labels, 5, groups), votes.argmax(1) == labels
    )


def test_some_images_are_classified_among_all_as_if_all_were() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(60, 5, generator=generator)
    labels, groups = torch.arange(60) % 3, torch.arange(60) // 2
    some = torch.tensor([0, 7, 8, 59])
    in_all = mask_correct_knn_predictions(points, labels, 5, groups)
    assert torch.equal(mask_correct_knn_predictions(points, labels, 5, groups, some), in_all[some])
