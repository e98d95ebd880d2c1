"""Classifiers in closed form on a version's features, beside a slow version with a loop for each
image.
"""

import numpy as np
import pytest
import torch
from streams import Bench, Learned

from core.learning.evaluation.baselines import (
    FOLDS,
    assign_cross_validation_folds,
    cross_validate_feature_baselines,
    evaluate_feature_baselines,
    find_first_row_scored_above_own_class,
    mask_images_usable_for_cross_validation,
)
from core.learning.evaluation.probe import ProbedImages
from core.learning.networks import HeadSpec, ImageSpec, build_network

TEN = (("ant", "bee"), ("cat", "dog"), ("elk", "fox"), ("gnu", "hen"), ("ibex", "jay"))


def draw_examples(
    n: int = 60, width: int = 8, classes: int = 3
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw overlapping classes: float32 features [n, width] and labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, classes, (n,), generator=generator)
    means = torch.randn(classes, width, generator=generator)
    return means[labels] + 1.5 * torch.randn(n, width, generator=generator), labels


def predict_slowly(
    features: torch.Tensor, labels: torch.Tensor, fold: list[int]
) -> tuple[list[int], list[int]]:
    """Return the predictions of both classifiers, summing everything again for each image in
    float64.
    """
    x, y = features.double().numpy(), labels.numpy()
    n, width = x.shape
    classes = sorted(set(y.tolist()))
    by_mean, by_discriminant = [], []
    for i in range(n):
        rows = [j for j in range(n) if fold[j] != fold[i]]
        means = [np.mean([x[j] for j in rows if y[j] == c], axis=0) for c in classes]
        cosines = [x[i] @ m / (np.linalg.norm(x[i]) * np.linalg.norm(m)) for m in means]
        by_mean.append(classes[int(np.argmax(cosines))])
        sigma = np.zeros((width, width))
        for j in rows:
            away = x[j] - means[classes.index(y[j])]
            sigma += np.outer(away, away) / (len(rows) - len(classes))
        square, trace = (sigma * sigma).sum(), np.trace(sigma)
        share = ((1 - 2 / width) * square + trace**2) / (
            (len(rows) + 1 - 2 / width) * (square - trace**2 / width)
        )
        share = min(1.0, share)
        inverse = np.linalg.inv((1 - share) * sigma + share * trace / width * np.eye(width))
        distances = [(x[i] - m) @ inverse @ (x[i] - m) for m in means]
        by_discriminant.append(classes[int(np.argmin(distances))])
    return by_mean, by_discriminant


def test_both_classifiers_answer_as_when_all_is_summed_again_for_each_image() -> None:
    features, labels = draw_examples()
    by_mean, by_discriminant = predict_slowly(
        features, labels, assign_cross_validation_folds(labels).tolist()
    )
    found = cross_validate_feature_baselines(features, labels)
    assert found.lda is not None
    assert found.ncm.tolist() == [a == b for a, b in zip(by_mean, labels.tolist(), strict=True)]
    assert found.lda.tolist() == [
        a == b for a, b in zip(by_discriminant, labels.tolist(), strict=True)
    ]
    assert 0.4 < found.ncm.float().mean() < 1 and found.ncm.tolist() != found.lda.tolist()


def test_the_images_of_a_class_are_dealt_to_the_folds_in_their_order() -> None:
    labels = torch.tensor([0, 1, 0, 0, 1, 0, 0, 0, 2])
    assert assign_cross_validation_folds(labels).tolist() == [0, 1, 1, 2, 2, 3, 4, 0, 2]
    _, many = draw_examples(100)
    for label in range(3):
        counts = torch.bincount(assign_cross_validation_folds(many)[many == label], minlength=FOLDS)
        assert int(counts.max() - counts.min()) <= 1


def test_a_discriminant_is_not_made_of_too_many_features() -> None:
    features, labels = draw_examples(30, 2049)
    found = cross_validate_feature_baselines(features, labels)
    assert found.lda is None and len(found.ncm) == 30


@pytest.mark.parametrize(
    ("labels", "classes", "kept"),
    [
        ([0, 0, 1, 1], 2, [True] * 4),
        ([0, 0, 1, 1], 3, None),  # a third of the classes is missing
        ([0, 0, 0, 0], 1, None),  # nothing to tell apart
        ([*[c for c in range(9) for _ in range(2)], 9], 10, [True] * 18 + [False]),
        ([], 2, None),
    ],
    ids=("all", "missing", "one", "a tenth", "none"),
)
def test_classes_with_one_image_are_left_out_up_to_a_tenth(labels, classes, kept) -> None:
    found = mask_images_usable_for_cross_validation(
        torch.tensor(labels, dtype=torch.int64), classes
    )
    assert (None if found is None else found.tolist()) == kept


def make_samples(scenario: str, n: int = 30):
    """Return a network with two tasks of two classes, a sample of each, and which of their images
    the version predicts correctly.
    """
    heads = HeadSpec(("a", "b", "c", "d"), ((1, ("a", "b")), (2, ("c", "d"))))
    network = build_network({"name": "mlp", "hidden": [3]}, ImageSpec(2, 1), scenario, heads, 1)
    features, labels = draw_examples(2 * n, classes=4)
    labels = torch.cat([labels[:n] % 2, labels[n:] % 2 + 2])
    samples = {
        task: ProbedImages(torch.arange(n), features[at : at + n], labels[at : at + n])
        for task, at in ((1, 0), (2, n))
    }
    return network, samples, {task: torch.arange(n) % 3 == 0 for task in samples}


def test_all_classes_are_told_apart_but_in_the_task_scenario_those_of_a_task() -> None:
    network, samples, right = make_samples("class")
    together = evaluate_feature_baselines(network, samples, right).ncm
    apart = evaluate_feature_baselines(make_samples("task")[0], samples, right).ncm
    assert together is not None and apart is not None
    pooled = cross_validate_feature_baselines(
        *(torch.cat([getattr(s, f) for s in samples.values()]) for f in ("features", "labels"))
    )
    assert together.all == (int(pooled.ncm.sum()), 60) and together.own == (20, 60)
    single = {
        str(t): int(cross_validate_feature_baselines(s.features, s.labels).ncm.sum())
        for t, s in samples.items()
    }
    assert apart.tasks == {task: (count, 30) for task, count in single.items()}


def test_of_fewer_than_twenty_images_nothing_is_told() -> None:
    assert evaluate_feature_baselines(*make_samples("class", 9)) == (None, None, None)
    assert None not in evaluate_feature_baselines(*make_samples("class", 10))


def test_a_task_that_the_version_cannot_answer_is_left_out() -> None:
    network, samples, right = make_samples("task")
    found = evaluate_feature_baselines(network, samples, {1: right[1]}).ncm
    assert found is not None and set(found.tasks) == {"1"} and found.own[1] == 30


def test_the_first_better_row_is_the_one_that_a_loop_over_growing_heads_finds() -> None:
    generator = torch.Generator().manual_seed(4)
    scores = torch.randint(0, 4, (200, 5), generator=generator).double()  # with ties
    labels = torch.randint(0, 5, (200,), generator=generator)
    rows = torch.tensor([3, 0, 4, 1, 2])  # the row of the head that each column is
    found = find_first_row_scored_above_own_class(scores, labels, rows)
    column_of = rows.argsort()
    for image, (own, first) in enumerate(zip(rows[labels].tolist(), found.tolist(), strict=True)):
        for known in range(own + 1, 6):
            columns = sorted(column_of[:known].tolist())  # of the classes before row `known`
            best = max(columns, key=lambda column: (float(scores[image, column]), -column))
            assert (best == int(labels[image])) == (first >= known)


def test_among_the_classes_before_a_row_as_many_are_right_as_are_counted() -> None:
    network, samples, right = make_samples("class")
    found = evaluate_feature_baselines(network, samples, right)
    assert found.lda is not None and found.later is not None and set(found.later) == {"1", "2"}
    assert found.later["2"] == {} and set(found.later["1"]) <= {"2", "3"}
    every = torch.cat([samples[task].features for task in (1, 2)])
    labels = torch.cat([samples[task].labels for task in (1, 2)])
    first = cross_validate_feature_baselines(every, labels).first
    assert first is not None
    alone = int((first[:30] >= 2).sum())
    assert (
        alone == found.lda.tasks["1"][0] + sum(found.later["1"].values()) > found.lda.tasks["1"][0]
    )


def test_rows_of_the_head_may_be_in_another_order_than_labels() -> None:
    network, samples, right = make_samples("class")
    plain = evaluate_feature_baselines(network, samples, right)
    turned = evaluate_feature_baselines(network, samples, right, torch.tensor([0, 1, 3, 2]))
    assert plain.later is not None and turned.later is not None and plain.lda == turned.lda
    assert sum(plain.later["1"].values()) == sum(turned.later["1"].values()) > 0


def test_where_classes_do_not_grow_nothing_is_said_of_fewer_classes() -> None:
    assert evaluate_feature_baselines(*make_samples("task")).later is None


def learn_digits(tmp_path, method: object, **recipe: object) -> Learned:
    bench = Bench(tmp_path, "class", {"name": "mlp", "hidden": [64]}, size=8, classes=TEN)
    bench.show_digits()
    more = {"epochs": 3, "batch_size": 32, "augment": "none", **recipe}
    return bench.stream(5, method=method, **more)


def test_they_stand_in_the_result_and_among_the_metrics_of_a_job(tmp_path) -> None:
    learned = learn_digits(tmp_path, "finetune")
    ncm, own = learned.result["baseline_ncm"]["all"], learned.result["baseline_ncm"]["own"]
    new = [row for row in learned.result["results"] if row["version"] == "new"]
    assert own == [sum(r["correct"] for r in new), sum(r["total"] for r in new)]
    assert ncm[1] == own[1] > 250 and ncm[0] / ncm[1] > own[0] / own[1] + 0.3
    assert [
        sum(c) for c in zip(*learned.result["baseline_ncm"]["tasks"].values(), strict=True)
    ] == ncm
    told = {e["name"]: e["value"] for e in learned.events if e["event"] == "metric"}
    assert told["baseline_ncm"] == ncm[0] / ncm[1] and 0.5 < told["baseline_lda"] < 1
    later = learned.result["baseline_later"]
    assert set(later) == set(learned.result["baseline_lda"]["tasks"]) and later["5"] == {}
    assert {int(row) for row in later["1"]} <= set(range(2, 10)) and later["1"]


def test_where_held_out_images_do_not_stay_there_are_none(bench) -> None:
    spec = {**bench.spec(1, None), "held_out_stays": False}
    assert bench.learn(spec).result["baseline_ncm"] is None
