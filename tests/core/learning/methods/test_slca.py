"""SLCA: what is remembered of a class, what is drawn, the loss of normalised logits, and a head
that is not biased.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from streams import Bench

from core.learning.memory.gaussians import RIDGE, ClassGaussians
from core.learning.methods.method import TrainingStage
from core.learning.methods.slca import (
    ALIGN,
    SlcaHyper,
    SlcaMethod,
    compute_normalised_logit_cross_entropy,
)
from core.learning.recipe import OptimizerRecipe
from core.learning.state import MethodState, MethodStateSection

WIDTH, ROWS = 5, torch.tensor([1, 4])


def draw_examples(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw correlated features float64 [n, 5] of the rows 1 and 4 of a head, and these rows."""
    generator = torch.Generator().manual_seed(2)
    mixing = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    labels = ROWS[torch.arange(n) % 3 % 2]
    noise = torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
    return noise @ mixing + labels[:, None], labels


def compute_slow_covariances(
    kind: str, features: np.ndarray, labels: np.ndarray
) -> dict[int, np.ndarray]:
    """Return Σ of each class, computed by numpy and loops."""
    own = {row: np.cov(features[labels == row].T) for row in ROWS.tolist()}
    if kind == "full":
        return own
    if kind == "diagonal":
        return {row: np.diag(np.diag(sigma)) for row, sigma in own.items()}
    counts = {row: int((labels == row).sum()) for row in own}
    pooled = sum((counts[row] - 1) * own[row] for row in own) / (len(labels) - len(own))
    return dict.fromkeys(own, pooled)


@pytest.mark.parametrize("kind", ["shared", "diagonal", "full"])
def test_draws_are_a_mean_and_a_root_of_the_covariance_times_noise(kind: str) -> None:
    features, labels = draw_examples()
    gaussians = ClassGaussians(MethodStateSection())
    gaussians.fit_and_store_task_gaussians(3, features, labels, ROWS, kind)
    drawn, rows = gaussians.draw_gaussian_features(6, torch.Generator().manual_seed(9))
    assert rows.tolist() == [1] * 6 + [4] * 6
    generator = torch.Generator().manual_seed(9)
    sigmas = compute_slow_covariances(kind, features.numpy(), labels.numpy())
    for at, row in enumerate(ROWS.tolist()):
        noise = torch.randn(6, WIDTH, generator=generator).double().numpy()
        ridge = RIDGE * np.trace(sigmas[row]) / WIDTH
        root = np.linalg.cholesky(sigmas[row] + ridge * np.eye(WIDTH))
        expected = features[labels == row].mean(0).numpy() + noise @ root.T
        found = drawn[6 * at : 6 * at + 6].double().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_class_of_several_tasks_is_drawn_in_the_shares_of_its_images() -> None:
    gaussians = ClassGaussians(MethodStateSection())
    features, labels = draw_examples(30)
    gaussians.fit_and_store_task_gaussians(
        1, features[labels == 1][:12], labels[labels == 1][:12], ROWS[:1], "full"
    )
    gaussians.fit_and_store_task_gaussians(
        2, features[:9] + 100, labels[:9], ROWS, "full"
    )  # six of row 1, three of row 4
    drawn, rows = gaussians.draw_gaussian_features(10, torch.Generator().manual_seed(0))
    assert {row: int((rows == row).sum()) for row in (1, 4)} == {1: 10, 4: 10}
    late = drawn.mean(1) > 50
    assert int(late[rows == 1].sum()) == 4 and bool(
        late[rows == 4].all()
    )  # 10 · 12 / 18 are of task 1


def test_a_class_with_one_image_is_drawn_about_it() -> None:
    gaussians = ClassGaussians(MethodStateSection())
    features, _ = draw_examples(2)
    gaussians.fit_and_store_task_gaussians(1, features, ROWS, ROWS, "full")
    drawn, _ = gaussians.draw_gaussian_features(3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn[:3], features[:1].float().expand(3, -1), atol=1e-4, rtol=0)


def test_the_loss_is_the_papers_formula_written_out() -> None:
    logits, y, tau = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1]), 0.1
    total = 0.0
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        length = sum(value**2 for value in row) ** 0.5
        exponentials = [np.exp(value / (tau * length)) for value in row]
        total -= np.log(exponentials[label] / sum(exponentials)) / len(y)
    assert float(compute_normalised_logit_cross_entropy(logits, y, tau)) == pytest.approx(
        total, rel=1e-12
    )
    assert float(compute_normalised_logit_cross_entropy(7 * logits, y, tau)) == pytest.approx(
        total, rel=1e-12
    )
    assert float(
        compute_normalised_logit_cross_entropy(torch.zeros(2, 4), y[:2], tau)
    ) == pytest.approx(np.log(4))


def test_the_backbone_learns_at_a_share_of_the_heads_rate() -> None:
    stage = TrainingStage(backbone_rate=0.1)
    for recipe in (OptimizerRecipe(lr=0.02), OptimizerRecipe(lr=0.5, head_lr=0.02)):
        found = stage.get_optimizer_with_stage_rates(recipe)
        assert (
            found.get_peak_learning_rate("backbone.1") == pytest.approx(0.002)
            and found.get_peak_learning_rate("head.weight") == 0.02
        )
    assert TrainingStage().get_optimizer_with_stage_rates(recipe) is recipe


@pytest.mark.parametrize(
    ("first", "pretrained", "rates"),
    [
        (True, False, [1.0]),
        (True, True, [0.1]),
        (False, True, [0.1, None]),
        (False, False, [0.1, None]),
    ],
)
def test_random_weights_learn_a_first_task_at_the_full_rate(first, pretrained, rates) -> None:
    ctx = SimpleNamespace(first=first, network=SimpleNamespace(pretrained=pretrained))
    assert [
        stage.backbone_rate
        for stage in SlcaMethod(SlcaHyper(), MethodState()).plan_training_stages(ctx)
    ] == rates


@pytest.fixture
def digits(tmp_path) -> Bench:
    bench = Bench(tmp_path, "class", {"name": "mlp", "hidden": [64]}, size=8)
    bench.show_digits()
    bench.recipe = {"epochs": 3, "batch_size": 32, "augment": "none"}
    return bench


def test_old_classes_are_still_answered_and_no_image_is_kept(digits) -> None:
    def compute_accuracy(learned) -> float:
        new = [row for row in learned.result["results"] if row["version"] == "new"]
        return sum(row["correct"] for row in new) / sum(row["total"] for row in new)

    aligned = digits.stream(3, method="slca")
    assert compute_accuracy(aligned) > 0.75
    assert compute_accuracy(digits.stream(3, method="finetune")) < 0.5
    assert {part["type"] for part in aligned.result["parts"]} == {"backbone", "head", "own"}
    sizes = {
        name: tuple(t.shape) for name, t in aligned.tensors("own").items() if name.startswith("2.")
    }
    assert sizes == {
        "2.rows": (2,),
        "2.counts": (2,),
        "2.means": (2, 64),
        "2.covariance": (1, 64 * 65 // 2),
    }


def test_alignment_moves_the_head_alone_and_takes_all_draws_once_an_epoch(
    digits, monkeypatch
) -> None:
    seen: list[tuple[int, int]] = []
    terms_of = SlcaMethod.compute_loss_terms

    def compute_loss_terms(self, ctx, batch):
        found = terms_of(self, ctx, batch)
        if ctx.stage == ALIGN:
            assert set(ctx.trainable) == {"head.weight", "head.bias"}
            n = len(self._draw_shuffled_epoch_features(ctx)[1])
            seen.append(
                (ctx.epoch, n * (ctx.batch + 1) // ctx.batches - n * ctx.batch // ctx.batches)
            )
        return found

    monkeypatch.setattr(SlcaMethod, "compute_loss_terms", compute_loss_terms)
    digits.stream(2, method={"name": "slca", "align_epochs": 2, "draws": 50})
    epochs = {epoch for epoch, _ in seen}
    assert [sum(n for e, n in seen if e == epoch) for epoch in sorted(epochs)] == [4 * 50] * 2


def test_classes_that_another_method_learned_keep_their_rows(tmp_path) -> None:
    bench = Bench(tmp_path)
    first = bench.learn_task(1, method="finetune")
    then = bench.learn_task(2, first, method="slca")
    before, after = (learned.tensors("head")["head.weight"] for learned in (first, then))
    assert torch.equal(after[:2], before) and not torch.equal(
        after[2:], torch.zeros_like(after[2:])
    )


def test_validation_is_warned_of_since_it_would_choose_a_state_before_alignment(tmp_path) -> None:
    bench = Bench(tmp_path)
    first, then = bench.learn_tasks(2, method="slca", validation=0.2)
    assert not any(text.startswith("validation chooses") for text in first.result["warnings"])
    assert any(text.startswith("validation chooses") for text in then.result["warnings"])
