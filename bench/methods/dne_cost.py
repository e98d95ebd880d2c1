"""Costs of an expert: bytes of a version, all versions from one pass, the packed pass, and a
training step.

    python -m bench.methods.dne_cost [--tasks 6] [--heads 1] [--batch 64] [--rounds 5]
        [--device cpu|cuda]

The architecture `dne` at 32 pixels with a first expert of 12 heads, then one of `--heads` for each
task. Printed are the bytes that each version adds beside the formula's (and a ResNet-18, which a
version of DER adds); seconds of answering as all versions over answering as the last (goal ≤ 1.05);
the packed pass of the older experts over the exact one; and a training step of the last task,
packed where the method's is, over the naive one: there keys are projected, and the teacher is a
copy of the previous version with a pass of its own (goal: naive ≥ 2 times as long). Both kinds take
turns; seconds are medians.
"""

import argparse
import copy
import math
import statistics
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from bench.methods.optimizer_step import measure_device_work_seconds
from core.learning.networks import HeadSpec, ImageSpec, build_backbone_on_meta_device, build_network
from core.learning.networks.dne.network import DneNetwork
from core.learning.networks.dne.packed import PackedExperts, is_expert_packing_faster
from core.learning.networks.dne.task_attention import TaskAttention
from core.learning.networks.growing import (
    FeatureBlocksClassifier,
    OlderExpertFeatures,
    compute_linear_layer_block_by_block,
)
from core.learning.precision import move_network_to_device, use_training_precision

PER_TASK = 10


def count_dne_expert_parameters(heads: int, sources: int) -> int:
    """Compute the number of parameters of a DNE expert by a formula."""
    d, width, gamma, layers = 32 * heads, 32, 4, 6
    if sources == heads:
        mixing = 2 * gamma * d**2 + gamma * d + d
    else:
        mixing = 2 * width**2 * (1 + gamma**2) + 2 * heads
        mixing += sources * (2 * gamma * width**2 + gamma * width + width)
    return layers * (4 * d + 4 * d**2 + d + mixing) + 20 * heads + 48 * d + d + 64 * d + d + 2 * d


def build_random_expert_chain(
    tasks: int, heads: int
) -> tuple[DneNetwork, list[FeatureBlocksClassifier]]:
    """Build a chain of DNE experts with random weights, and a classifier for every version."""
    first = [str(c) for c in range(50)]
    plain = build_network({"name": "dne"}, ImageSpec(32, 3), "class", HeadSpec(tuple(first)))
    network = DneNetwork(plain)
    classifiers = [copy.deepcopy(network.head)]
    for task in range(2, tasks + 1):
        network.set_size_of_next_expert(heads)
        names = [f"{task}-{c}" for c in range(PER_TASK)]
        network.add_task_classes(task, names, "default", torch.Generator().manual_seed(task))
        classifiers.append(copy.deepcopy(network.head))
    return network.eval(), classifiers


def compute_dne_attention_by_formula(attention: TaskAttention, z: Tensor, x: Tensor) -> Tensor:
    """Compute DNE's task attention directly by its formula."""
    scores = (
        (z @ attention.query.T) @ (x @ attention.key.T).transpose(-1, -2) / math.sqrt(x.shape[-1])
    )
    values = torch.einsum("...jc,joc->...jo", x, attention.value) + attention.bias
    return attention.scale[:, None] * (scores.softmax(-1) @ values)


class DneTrainingStep:
    """A training step of DNE's newest expert, with and without shared computation."""

    def __init__(self, network: DneNetwork, before: FeatureBlocksClassifier, x: Tensor) -> None:
        self.network, self.x = network, x
        self.y = torch.arange(len(x), device=x.device) % len(network.classes)
        self.before = before
        with use_training_precision(x.device):
            self.packed = network.pack_older_experts()
        moving = network.list_trainable_parameter_names(5)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in moving)
        self.previous = copy.deepcopy(network).requires_grad_(False)
        self.previous.experts = self.previous.experts[:-1]

    def compute_older_features(self, packed: PackedExperts | None) -> OlderExpertFeatures:
        """Compute the outputs of older experts, which the newest expert and the teacher read."""
        with use_training_precision(self.x.device):
            return self.network.compute_older_features(self.x, packed)

    def run_step_with_shared_pass(self) -> None:
        """Run a DNE training step in which student and teacher share the pass through older
        experts.
        """
        old = self.compute_older_features(
            self.packed if is_expert_packing_faster(self.x.device) else None
        )
        with use_training_precision(self.x.device):
            newest = self.network.compute_newest_features(old, self.x)
            with torch.no_grad():
                before = self.before
                teacher = compute_linear_layer_block_by_block(
                    torch.cat(old.features, 1), before.weight, before.bias, before.widths
                )
            self._compute_loss_and_gradients(torch.cat([*old.features, newest], 1), newest, teacher)

    def run_step_with_separate_passes(self) -> None:
        """Run a DNE training step with separate passes for student and teacher."""
        with (
            mock.patch.object(TaskAttention, "forward", compute_dne_attention_by_formula),
            use_training_precision(self.x.device),
        ):
            features = self.network.features(self.x)
            with torch.no_grad():
                teacher = self.before(self.previous.features(self.x))
            self._compute_loss_and_gradients(features, features[:, self.before.width :], teacher)

    def _compute_loss_and_gradients(
        self, features: Tensor, newest: Tensor, teacher: Tensor
    ) -> None:
        logits = self.network.logits(features).float()
        assert self.network.auxiliary is not None
        auxiliary_logits = self.network.auxiliary(newest).float()
        student = logits[:, : teacher.shape[1]].log_softmax(1)
        loss = functional.cross_entropy(logits, self.y) + functional.cross_entropy(
            auxiliary_logits, self.y * 0
        )
        loss = loss + functional.kl_div(student, teacher.float().softmax(1), reduction="batchmean")
        for parameter in self.network.parameters():
            parameter.grad = None
        loss.backward()


def main() -> None:
    """Print four comparisons of the cost of the method DNE."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--heads", type=int, nargs="+", default=[1])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    rival = sum(
        p.nbytes
        for p in build_backbone_on_meta_device({"name": "resnet18"}, ImageSpec(32, 3)).parameters()
    )
    for heads in options.heads:
        network, classifiers = build_random_expert_chain(options.tasks, heads)
        print(f"\n{heads} heads per task: bytes that a version adds")
        sources = 0
        for version, expert in enumerate(network.list_experts(), 1):
            sources += expert.heads
            shard = sum(p.nbytes for p in expert.parameters())
            head = sum(p.nbytes for p in classifiers[version - 1].parameters())
            formula_bytes = 4 * count_dne_expert_parameters(expert.heads, sources)
            print(
                f"  {version}: expert {shard:,} (formula {formula_bytes:,}), classifier {head:,}; "
                f"a ResNet-18 {rival:,}: {rival / (shard + head):.1f} times"
            )
        move_network_to_device(network, device)
        classifiers = [classifier.to(device) for classifier in classifiers]
        x = torch.randn(options.batch, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(
            device
        )
        _print_alternating_seconds(
            "all versions over the last",
            _make_all_and_newest_predictors(network, classifiers, x),
            options.rounds,
            device,
        )
        step = DneTrainingStep(network, classifiers[-2], x)
        kinds = (
            (lambda step=step: step.compute_older_features(step.packed)),
            (lambda step=step: step.compute_older_features(None)),
        )
        _print_alternating_seconds(
            "packed over exact pass of the older experts", kinds, options.rounds, device
        )
        _print_alternating_seconds(
            "naive step over ours",
            (step.run_step_with_separate_passes, step.run_step_with_shared_pass),
            options.rounds,
            device,
        )


def _make_all_and_newest_predictors(  # type: ignore[no-untyped-def]
    network: DneNetwork, classifiers: list[FeatureBlocksClassifier], x: Tensor
):
    def predict_with_classifiers(chosen_classifiers: list[FeatureBlocksClassifier]) -> None:
        with torch.inference_mode(), use_training_precision(x.device):
            network.compute_logits_of_several_versions(x, chosen_classifiers)

    return lambda: predict_with_classifiers(classifiers), lambda: predict_with_classifiers(
        classifiers[-1:]
    )


def _print_alternating_seconds(title: str, kinds, rounds: int, device: torch.device) -> None:  # type: ignore[no-untyped-def]
    seconds: list[list[float]] = [[], []]
    for at in range(rounds + 1):
        for kind, kind_seconds in zip(kinds, seconds, strict=True):
            took = measure_device_work_seconds(kind, device)
            if at:
                kind_seconds.append(took)
    first, second = (statistics.median(kind_seconds) for kind_seconds in seconds)
    print(f"  {title}: {1000 * first:.0f} ms by {1000 * second:.0f} ms = {first / second:.2f}")


if __name__ == "__main__":
    main()
