"""ER-ACE: its two losses, and the file of Mammoth's that they come from, written out."""

import torch
from streams import spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.memory.reservoir import ReservoirBuffer
from core.learning.methods.replay.er_ace import (
    ExperienceReplayAce,
    compute_cross_entropy_over_batch_classes,
)


def compute_mammoth_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the loss as Mammoth does, which masks the classes that the batch lacks by a very low
    logit.
    """
    mask = torch.zeros_like(logits)
    mask[:, labels.unique()] = 1
    return functional.cross_entropy(
        logits.masked_fill(mask == 0, torch.finfo(logits.dtype).min), labels
    )


def test_new_images_compete_with_the_classes_of_their_batch_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 6, dtype=torch.float64, generator=generator)
    labels = torch.tensor([1, 4, 4, 1, 5, 5, 1, 4, 1])
    slow = torch.stack(
        [
            -logits[i, y] + torch.logsumexp(logits[i, [1, 4, 5]], 0)
            for i, y in enumerate(labels.tolist())
        ]
    )
    torch.testing.assert_close(
        compute_cross_entropy_over_batch_classes(logits, labels), slow.mean()
    )
    torch.testing.assert_close(
        compute_cross_entropy_over_batch_classes(logits, labels),
        compute_mammoth_loss(logits, labels),
    )


def test_the_logits_of_absent_classes_get_no_gradient() -> None:
    logits = torch.zeros(3, 4, requires_grad=True)
    compute_cross_entropy_over_batch_classes(logits, torch.tensor([0, 2, 0])).backward()
    assert (
        logits.grad is not None
        and not logits.grad[:, [1, 3]].any()
        and logits.grad[:, [0, 2]].any()
    )


def test_replayed_images_compete_with_all_classes_and_both_losses_add_up(
    bench, monkeypatch
) -> None:
    drawn = spy_on_calls(
        monkeypatch,
        ReservoirBuffer,
        "draw_items_and_augmentation_numbers",
        lambda found, *_: found[0].labels,
    )
    seen = spy_on_calls(monkeypatch, ExperienceReplayAce, "forward", lambda logits, *_: logits)

    def compare_replay_loss(method, ctx, batch, terms):
        if "replay" not in terms:
            return None
        expected = functional.cross_entropy(seen[-1].detach().float()[len(batch.y) :], drawn[-1])
        return torch.equal(terms["replay"].detach(), expected)

    checked = spy_on_losses(monkeypatch, ExperienceReplayAce, compare_replay_loss)
    bench.stream(2, method="er-ace")
    assert checked.count(True) > 12 and False not in checked
