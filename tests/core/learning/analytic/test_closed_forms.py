"""Closed forms from sums, beside scikit-learn's on the same examples, and their independence of
order and cut.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from torch import Tensor

from core.learning.analytic import balance, discriminant, linear, ridge
from core.learning.analytic.linear import (
    append_column_of_ones,
    draw_projection_matrix,
    project_to_random_features,
)
from core.learning.analytic.sums import FeatureSums, add_feature_sums_of_tasks
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature

WIDTH, CLASSES, EXAMPLES = 12, 4, 300


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute left-out scores in blocks of five examples, so that each test joins several."""
    monkeypatch.setattr(linear, "CACHE_BYTES", 5 * 8 * WIDTH)


def draw_examples(
    seed: int, count: int = EXAMPLES, classes: int = CLASSES
) -> tuple[Tensor, Tensor]:
    """Draw features float64 [N, D] around a mean for each class, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    means = torch.randn(classes, WIDTH, generator=generator, dtype=torch.float64)
    mixing = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5
    noise = torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    order = torch.randperm(count, generator=generator)
    return (means[labels] + noise @ mixing)[order], labels[order]


def compute_sums(h: Tensor, labels: Tensor, classes: int = CLASSES) -> FeatureSums:
    sums = FeatureSums.make_empty_sums(h.shape[1], classes)
    sums.add_examples(h, labels)
    return sums


@pytest.mark.parametrize("strength", [1e-3, 1.0, 100.0])
def test_ridge_from_sums_is_scikit_learns_ridge(strength: float) -> None:
    features, labels = draw_examples(0)
    h = append_column_of_ones(features)
    reference = Ridge(alpha=strength, fit_intercept=False, solver="cholesky").fit(
        h, np.eye(CLASSES)[labels]
    )
    weight = ridge.solve_ridge_regression(compute_sums(h, labels), strength)
    torch.testing.assert_close(weight.T, torch.from_numpy(reference.coef_), rtol=1e-9, atol=1e-10)


def test_the_chosen_strength_has_the_least_cross_validation_of_the_whole_grid() -> None:
    features, labels = draw_examples(1, 60)
    h = append_column_of_ones(features)
    sums = compute_sums(h, labels)
    y = torch.eye(CLASSES, dtype=torch.float64)[labels]

    def compute_validation_error(strength: float) -> float:
        hat = h @ torch.linalg.solve(sums.gram + strength * torch.eye(len(sums.gram)), h.T)
        residual = (y - hat @ y).square().sum()
        return float(len(h) * residual / (len(h) - hat.trace()).square())

    values = {
        strength: compute_validation_error(strength)
        for strength in ridge.list_candidate_ridge_strengths(float(sums.gram.diagonal().mean()))
    }
    chosen, weight = ridge.choose_ridge_strength_and_solve(sums)
    assert chosen == min(values, key=lambda s: (values[s], -s))
    assert len({round(value, 6) for value in values.values()}) > 3
    torch.testing.assert_close(
        weight, ridge.solve_ridge_regression(sums, chosen), rtol=1e-7, atol=1e-9
    )


def test_a_gram_matrix_of_fewer_examples_than_features_has_a_finite_solution() -> None:
    features, labels = draw_examples(2, 6)
    _, weight = ridge.choose_ridge_strength_and_solve(
        compute_sums(append_column_of_ones(features), labels)
    )
    assert weight.isfinite().all()


@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_discriminants_without_shrinkage_are_scikit_learns(prior: discriminant.Prior) -> None:
    features, labels = draw_examples(3)
    kept = (labels != 0) | (torch.arange(len(labels)) % 3 == 0)  # a rare class
    features, labels = features[kept], labels[kept]
    priors = np.full(CLASSES, 1 / CLASSES) if prior == "uniform" else None
    reference = LinearDiscriminantAnalysis(solver="svd", priors=priors, tol=1e-12).fit(
        features, labels
    )
    linear = discriminant.solve_linear_discriminant_analysis(
        compute_sums(features, labels), prior, share=0.0
    )
    # scikit-learn divides the covariance by N, ours by N - C
    log_prior = torch.from_numpy(np.log(reference.priors_))
    theirs = torch.from_numpy(reference.decision_function(features)) - log_prior
    expected = theirs * (len(labels) - CLASSES) / len(labels) + log_prior
    torch.testing.assert_close(
        linear(features).log_softmax(1), expected.log_softmax(1), rtol=1e-8, atol=1e-8
    )


def test_what_all_classes_have_in_common_is_left_out_of_discriminants() -> None:
    features, labels = draw_examples(3)
    far = features + 1000  # as features after a ReLU lie far from 0
    linear = discriminant.solve_linear_discriminant_analysis(compute_sums(far, labels), share=0.1)
    weight, bias = linear.weight.sum(0), linear.bias.sum()
    assert float(weight.abs().max()) <= 1e-9 * float(linear.weight.abs().max())
    assert abs(float(bias)) <= 1e-9 * float(linear.bias.abs().max())
    mu = compute_sums(far, labels).class_means
    inverse = torch.linalg.inv(
        discriminant.shrink_covariance(
            discriminant.compute_shared_covariance(compute_sums(far, labels)), 0.1
        )
    )
    written_out = far @ inverse @ mu.T - 0.5 * (mu @ inverse * mu).sum(1)
    torch.testing.assert_close(linear(far).softmax(1), written_out.softmax(1), rtol=0, atol=1e-6)


def test_shrinkage_is_the_papers_formula_written_out() -> None:
    features, labels = draw_examples(4, 40)
    sigma = discriminant.compute_shared_covariance(compute_sums(features, labels))
    p, n = WIDTH, 40
    square = sum(float(sigma[i, j]) * float(sigma[j, i]) for i in range(p) for j in range(p))
    trace = sum(float(sigma[i, i]) for i in range(p))
    expected = ((1 - 2 / p) * square + trace**2) / ((n + 1 - 2 / p) * (square - trace**2 / p))
    assert 0 < expected < 1
    assert discriminant.compute_oas_shrinkage(sigma, n) == pytest.approx(expected, rel=1e-12)
    assert discriminant.compute_oas_shrinkage(torch.eye(p, dtype=torch.float64), n) == 1.0


def test_a_class_without_examples_is_never_answered() -> None:
    features, labels = draw_examples(5, classes=3)
    linear = discriminant.solve_linear_discriminant_analysis(
        compute_sums(features, labels, classes=4)
    )
    assert linear(features).softmax(1)[:, 3].max() == 0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_neither_order_nor_cut_of_the_batches_changes_the_classifier(
    random: object, cuts: int
) -> None:
    features, labels = draw_examples(6)
    h = append_column_of_ones(
        project_to_random_features(features, draw_projection_matrix(40, WIDTH, seed=1))
    ).double()
    whole = ridge.choose_ridge_strength_and_solve(compute_sums(h, labels))
    order = list(range(len(h)))
    random.shuffle(order)  # type: ignore[attr-defined]
    parts = []
    for piece in torch.tensor(order).chunk(cuts):
        own = labels[piece].unique().tolist()
        columns = torch.tensor([own.index(label) for label in labels[piece].tolist()])
        parts.append((compute_sums(h[piece], columns, len(own)).to_tensors(), own))
    strength, weight = ridge.choose_ridge_strength_and_solve(
        add_feature_sums_of_tasks(parts, CLASSES)
    )
    assert strength == pytest.approx(whole[0], rel=1e-9)
    assert float((weight - whole[1]).norm() / whole[1].norm()) <= 1e-8
    assert torch.equal((h @ weight).argmax(1), (h @ whole[1]).argmax(1))


def test_means_and_scatter_follow_added_examples() -> None:
    features, labels = torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 2
    whole, grown = FeatureSums.make_empty_sums(3, 2), FeatureSums.make_empty_sums(3, 2)
    whole.add_examples(features, labels)
    for rows in (slice(0, 7), slice(7, 12)):
        grown.add_examples(features[rows], labels[rows])
        # Read in between, which keeps them.
        assert grown.scatter_within_classes.shape == (3, 3)
    torch.testing.assert_close(grown.class_means, whole.class_means)
    torch.testing.assert_close(grown.scatter_within_classes, whole.scatter_within_classes)


def test_packed_sums_are_the_same_to_the_bit() -> None:
    sums = compute_sums(*draw_examples(7))
    again = FeatureSums.from_tensors(sums.to_tensors())
    assert torch.equal(again.gram, sums.gram.tril() + sums.gram.tril(-1).T)
    assert torch.equal(again.cross, sums.cross) and torch.equal(again.counts, sums.counts)
    assert sums.to_tensors()["gram"].shape == (WIDTH * (WIDTH + 1) // 2,)


def test_scores_of_left_out_examples_are_those_of_a_solution_without_each() -> None:
    features, labels = draw_examples(8, 30)
    h = append_column_of_ones(features)
    sums = compute_sums(h, labels)
    strength = 0.5
    found = ridge.compute_leave_one_out_scores(
        sums, strength, ridge.solve_ridge_regression(sums, strength), h, labels
    )
    for i in range(len(h)):
        others = torch.arange(len(h)) != i
        weight = ridge.solve_ridge_regression(compute_sums(h[others], labels[others]), strength)
        torch.testing.assert_close(found[i], h[i] @ weight, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e6])
def test_features_that_do_not_vary_within_classes_have_a_discriminant(scale: float) -> None:
    """Of the covariance only rounding is left, which is not positive definite; dead units are such
    features.
    """
    points = (
        scale
        * torch.rand(3, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        / 3
    )
    labels = torch.arange(3).repeat(30)
    sums = FeatureSums.make_empty_sums(40, 3, torch.device("cpu"))
    sums.add_examples(points[labels], labels)
    scores = discriminant.solve_linear_discriminant_analysis(sums)(points[labels])
    assert bool(scores.isfinite().all())
    if scale:
        assert bool((scores.argmax(1) == labels).all())


RARE = torch.tensor([0] * 30 + [1] * 20 + [2] * 8 + [3] * 2)
"""Labels of one class in fifteen times as many examples as another."""


def draw_rare_examples(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(RARE), WIDTH, generator=generator, dtype=torch.float64)
    return means[RARE] + noise, RARE


def test_balanced_sums_are_the_weighted_moments_written_out() -> None:
    h, labels = draw_rare_examples(9)
    found = balance.weigh_classes_equally_in_sums(compute_sums(h, labels))
    mu = torch.stack([h[labels == c].mean(0) for c in range(CLASSES)])
    sigma = (h - mu[labels]).T @ (h - mu[labels]) / len(h)
    weights = len(h) / CLASSES / torch.bincount(labels)
    gram = sum(
        weights[c] * (labels == c).sum() * (sigma + torch.outer(mu[c], mu[c]))
        for c in range(CLASSES)
    )
    torch.testing.assert_close(found.gram, gram, rtol=1e-10, atol=1e-10)
    cross = (weights[labels, None] * h).T @ torch.eye(CLASSES, dtype=torch.float64)[labels]
    torch.testing.assert_close(found.cross, cross, rtol=1e-10, atol=1e-10)


def test_balance_does_not_change_classes_of_equal_size() -> None:
    sums = compute_sums(*draw_examples(10))
    balanced = balance.weigh_classes_equally_in_sums(sums)
    torch.testing.assert_close(balanced.gram, sums.gram, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(balanced.cross, sums.cross, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("strength", [1e-3, 1.0, 100.0])
def test_balanced_scores_of_left_out_examples_are_those_of_a_solution_without_each(
    strength: float,
) -> None:
    h, labels = draw_rare_examples(11)
    found = balance.RidgeLeaveOneOut(compute_sums(h, labels), h, labels).compute_scores(strength)
    for i in range(len(h)):
        others = torch.arange(len(h)) != i
        weight = ridge.solve_ridge_regression(
            balance.weigh_classes_equally_in_sums(compute_sums(h[others], labels[others])), strength
        )
        torch.testing.assert_close(found[i], h[i] @ weight, rtol=1e-8, atol=1e-8)


def test_a_rare_class_is_answered_by_a_balanced_ridge() -> None:
    h, labels = draw_rare_examples(14)
    sums = compute_sums(h, labels)
    rare = (
        h[labels == 3].mean(0)
        + torch.randn(500, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    )
    plain, balanced = (
        rare @ ridge.choose_ridge_strength_and_solve(given)[1]
        for given in (sums, balance.weigh_classes_equally_in_sums(sums))
    )
    recalls = [float((scores.argmax(1) == 3).double().mean()) for scores in (plain, balanced)]
    assert recalls[0] < 0.5 * recalls[1]


def test_the_only_example_of_a_class_has_no_score_without_it() -> None:
    h, labels = draw_rare_examples(13)
    h, labels = h[:-1], labels[:-1]
    scores = balance.RidgeLeaveOneOut(compute_sums(h, labels), h, labels).compute_scores(1.0)
    assert bool(scores[-1].isnan().all()) and bool(scores[:-1].isfinite().all())


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_discriminants_of_left_out_examples_are_those_of_a_solution_without_each(
    share: float,
) -> None:
    h, labels = draw_rare_examples(15)
    found = discriminant.DiscriminantLeaveOneOut(compute_sums(h, labels), h, labels).compute_scores(
        share
    )
    for i in range(len(h)):
        others = torch.arange(len(h)) != i
        classifier = discriminant.solve_linear_discriminant_analysis(
            compute_sums(h[others], labels[others]), share=share
        )
        expected = classifier(h[i : i + 1])[0]
        difference = found[i] - expected
        torch.testing.assert_close(
            difference, difference.mean().expand(CLASSES), rtol=1e-8, atol=1e-8
        )


def test_the_share_of_a_discriminant_has_the_least_cross_entropy_of_left_out_answers() -> None:
    h, labels = draw_examples(18, 24)
    sums = compute_sums(h, labels)

    def compute_cross_entropy(share: float) -> float:
        scores = []
        for i in range(len(h)):
            others = torch.arange(len(h)) != i
            scores.append(
                discriminant.solve_linear_discriminant_analysis(
                    compute_sums(h[others], labels[others]), share=share
                )(h[i])
            )
        found = torch.stack(scores)
        return float(
            torch.nn.functional.cross_entropy(
                found / fit_softmax_temperature(found, labels), labels
            )
        )

    shares = (
        discriminant.compute_oas_shrinkage(discriminant.compute_shared_covariance(sums), 24),
        *discriminant.SHARES,
    )
    assert discriminant.DiscriminantLeaveOneOut(sums, h, labels).choose_shrinkage() == min(
        shares, key=compute_cross_entropy
    )


def test_the_strength_of_a_balanced_ridge_has_the_least_error_of_left_out_answers() -> None:
    h, labels = draw_rare_examples(16)
    sums = compute_sums(h, labels)

    def compute_left_out_error(strength: float) -> float:
        by_class: dict[int, list[float]] = {}
        for i in range(len(h)):
            others = torch.arange(len(h)) != i
            weight = ridge.solve_ridge_regression(
                balance.weigh_classes_equally_in_sums(compute_sums(h[others], labels[others])),
                strength,
            )
            error = h[i] @ weight - torch.eye(CLASSES, dtype=torch.float64)[labels[i]]
            by_class.setdefault(int(labels[i]), []).append(float(error.square().sum()))
        return sum(sum(errors) / len(errors) for errors in by_class.values())

    chosen = balance.RidgeLeaveOneOut(sums, h, labels).choose_strength(
        balance.weigh_classes_equally_in_sums(sums)
    )
    assert chosen == min(
        ridge.list_candidate_ridge_strengths(
            float(balance.weigh_classes_equally_in_sums(sums).gram.diagonal().mean())
        ),
        key=compute_left_out_error,
    )


def test_repeated_images_do_not_take_the_strength_away() -> None:
    """Fewer examples than features are fitted exactly, and repeated ones make that look like a good
    fit.
    """
    generator = torch.Generator().manual_seed(17)
    labels = torch.arange(40) % CLASSES
    means = torch.randn(CLASSES, 60, generator=generator, dtype=torch.float64)
    h = means[labels] + 2 * torch.randn(40, 60, generator=generator, dtype=torch.float64)
    h = torch.cat([h, h[:4]])
    sums = FeatureSums.make_empty_sums(60, CLASSES)
    sums.add_examples(h, labels := torch.cat([labels, labels[:4]]))
    assert (
        balance.RidgeLeaveOneOut(sums, h, labels).choose_strength(
            balance.weigh_classes_equally_in_sums(sums)
        )
        > ridge.choose_ridge_strength_and_solve(balance.weigh_classes_equally_in_sums(sums))[0]
    )


def _score_ridge(sums: FeatureSums, h: Tensor, labels: Tensor) -> Tensor:
    left_out = balance.RidgeLeaveOneOut(sums, h, labels)
    return left_out.compute_scores(
        left_out.choose_strength(balance.weigh_classes_equally_in_sums(sums))
    )


def _score_discriminant(sums: FeatureSums, h: Tensor, labels: Tensor) -> Tensor:
    left_out = discriminant.DiscriminantLeaveOneOut(sums, h, labels)
    return left_out.compute_scores(left_out.choose_shrinkage())


@pytest.mark.parametrize("score", [_score_ridge, _score_discriminant])
def test_left_out_answers_to_pure_noise_are_at_chance(
    score: Callable[[FeatureSums, Tensor, Tensor], Tensor],
) -> None:
    """With more features than examples, scores that keep the example would answer nearly all of
    them.
    """
    right, draws, count, classes, width = 0.0, 4, 45, 3, 100
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        h = torch.randn(count, width, generator=generator, dtype=torch.float64)
        labels = torch.arange(count) % classes
        scores = score(compute_sums(h, labels, classes), h, labels)
        right += float((scores.argmax(1) == labels).double().mean()) / draws
    error = (classes - 1) ** 0.5 / classes / (draws * count) ** 0.5
    assert abs(right - 1 / classes) <= 3 * error
