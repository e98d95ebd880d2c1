"""With the whole curvature, learning a linear model task after task ends where learning all tasks
together does.

First the recursion on random linear models f = f0 + J θ, with the blocks and the merging that are
used in earnest; then the method itself on small networks, by its own losses and gradients; and how
much is lost by each approximation.
"""

from functools import cached_property

import pytest
import torch
from linear import Hand, flatten_trainable, minimise_quadratic, set_trainable
from torch import nn

from core.learning.curvature.block import ExactCurvatureBlock
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import make_basis_vector_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters
from core.learning.methods.dlcft_memory import CurvatureMemory
from core.learning.methods.squared_loss import (
    compute_squared_errors,
    subtract_scaled_onehot_targets,
)
from core.learning.networks import HeadSpec, Network
from core.learning.networks.backbone import Backbone
from core.learning.networks.linear.linearised import LinearisedNetwork

ALPHA = 15.0
OUTPUTS = 4


class Linear:
    """A task of a linear model: H = mean JᵀJ, b = mean Jᵀ(y - f0)."""

    def __init__(self, parameters, n, generator):
        j = (
            torch.randn(n, OUTPUTS, parameters, generator=generator, dtype=torch.float64)
            / parameters**0.5
        )
        f0 = torch.randn(n, OUTPUTS, generator=generator, dtype=torch.float64)
        y = torch.randint(0, OUTPUTS, (n,), generator=generator)
        self.n = n
        self.h = torch.einsum("nci,ncj->ij", j, j) / n
        r = -subtract_scaled_onehot_targets(f0, y, ALPHA)
        self.b = torch.einsum("nci,nc->i", j, r) / n
        self.constant = 0.5 * r.square().sum() / n

    def loss(self, theta):
        return 0.5 * theta @ self.h @ theta - self.b @ theta + self.constant

    def gradient(self, theta):
        return self.h @ theta - self.b

    @property
    def curvature(self):
        return LayerCurvatures({"all": ExactCurvatureBlock(self.h)})


def make_tasks(parameters, sizes):
    generator = torch.Generator().manual_seed(0)
    return [Linear(parameters, n, generator) for n in sizes]


def compute_matrix(curvature):
    """Return S as the penalty's gradient multiplies by it."""
    block = curvature.blocks["all"]
    units = torch.eye(block.count_displacement_columns(1), dtype=torch.float64)
    return torch.stack(
        [
            curvature.compute_penalty_and_gradient({"all": unit[None]})[0]["all"][0]
            for unit in units
        ],
        1,
    )


def compute_shares(tasks, weighting):
    """Return the share of each task in the mean at its time."""
    sizes = [task.n if weighting == "samples" else 1 for task in tasks]
    return [sizes[t] / sum(sizes[: t + 1]) for t in range(len(tasks))]


def solve_nearest(a, right, start):
    """Return the solution of a θ = right that is nearest to `start`."""
    return start + torch.linalg.pinv(a, rtol=1e-11, hermitian=True) @ (right - a @ start)


def learn_sequentially(
    tasks, decay=0.0, weighting="task", centred=True, first_order=False, disturb=None
):
    """Return θ after each task.

    Args:
        disturb: added to θ after the first task.
    """
    parameters = len(tasks[0].b)
    eye = torch.eye(parameters, dtype=torch.float64)
    theta, memory, slope, found = (
        torch.zeros(parameters, dtype=torch.float64),
        None,
        0 * tasks[0].b,
        [],
    )
    for task, w in zip(tasks, compute_shares(tasks, weighting), strict=True):
        s = (1 - w) * (compute_matrix(memory) + decay * centred * eye) if memory else 0 * eye
        plain = (
            decay if (centred is False and memory) else 0.0
        )  # decay of its own in every task, as optimizers do it
        a = w * (task.h + decay * eye) + s + (1 - w) * plain * eye
        before = theta
        theta = solve_nearest(a, w * task.b + s @ theta - (1 - w) * slope, theta)
        if disturb is not None and memory is None:
            theta = theta + disturb
        if first_order:
            kept = slope + compute_matrix(memory) @ (theta - before) if memory else slope
            slope = (1 - w) * kept + w * task.gradient(theta)
        memory = memory.average_with(task.curvature, w) if memory else task.curvature
        found.append(theta)
    return found


def learn_jointly(tasks, decay=0.0, weighting="task"):
    sizes = torch.tensor(
        [task.n if weighting == "samples" else 1 for task in tasks], dtype=torch.float64
    )
    weights = sizes / sizes.sum()
    h = sum(w * task.h for w, task in zip(weights, tasks, strict=True))
    b = sum(w * task.b for w, task in zip(weights, tasks, strict=True))
    return solve_nearest(h + decay * torch.eye(len(b), dtype=torch.float64), b, torch.zeros_like(b))


def compute_relative_error(found, wanted):
    value = float((found - wanted).norm() / wanted.norm())
    print(f"relative error {value:.1e}")
    return value


CASES = {
    "30 parameters, 40 images each": (30, (40, 40, 40), {}),
    "60 parameters, 10, 12 and 8 images, decay": (60, (10, 12, 8), {"decay": 1e-3}),
    "30 parameters, unequal sizes, by images": (30, (50, 20, 35), {"weighting": "samples"}),
    "200 parameters for 120 equations": (200, (10, 10, 10), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_task_after_task_ends_where_all_tasks_together_do(case) -> None:
    parameters, sizes, settings = CASES[case]
    tasks = make_tasks(parameters, sizes)
    assert (
        compute_relative_error(
            learn_sequentially(tasks, **settings)[-1], learn_jointly(tasks, **settings)
        )
        < 1e-10
    )


def test_it_does_so_after_every_task() -> None:
    tasks = make_tasks(30, (40, 40, 40, 40, 40))
    for t, theta in enumerate(learn_sequentially(tasks)):
        assert compute_relative_error(theta, learn_jointly(tasks[: t + 1])) < 1e-10


def test_the_order_of_tasks_does_not_matter() -> None:
    tasks = make_tasks(30, (40, 30, 20))
    assert (
        compute_relative_error(learn_sequentially(tasks[::-1])[-1], learn_sequentially(tasks)[-1])
        < 1e-10
    )


def test_a_decay_that_is_counted_in_every_task_ends_elsewhere() -> None:
    tasks = make_tasks(60, (10, 12, 8))
    assert (
        compute_relative_error(
            learn_sequentially(tasks, decay=1e-3, centred=False)[-1],
            learn_jointly(tasks, decay=1e-3),
        )
        > 1e-3
    )


@pytest.mark.parametrize(("first_order", "exact"), [(False, False), (True, True)])
def test_a_task_that_did_not_converge_leaves_a_gradient_that_must_be_kept(
    first_order, exact
) -> None:
    tasks = make_tasks(30, (40, 40, 40))
    push = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = learn_sequentially(tasks, first_order=first_order, disturb=push)
    wrong = compute_relative_error(found[-1], learn_jointly(tasks))
    assert wrong < 1e-10 if exact else wrong > 1e-3


@pytest.mark.slow
def test_adam_ends_at_the_same_objective_but_elsewhere_with_more_parameters_than_equations() -> (
    None
):
    tasks = make_tasks(100, (6, 6, 6))
    memory, theta = None, torch.zeros(100, dtype=torch.float64)
    for t, task in enumerate(tasks):
        w, anchor = 1 / (t + 1), theta
        moving = theta.clone().requires_grad_()
        optimizer = torch.optim.Adam([moving], lr=0.2)
        steps = 1500
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            at = moving.detach()
            pull = (
                memory.compute_penalty_and_gradient({"all": (at - anchor)[None]})[0]["all"][0]
                if memory
                else 0
            )
            moving.grad = w * task.gradient(at) + (1 - w) * pull
            optimizer.step()
            schedule.step()
        theta = moving.detach()
        memory = memory.average_with(task.curvature, w) if memory else task.curvature
    best = learn_jointly(tasks)
    mean = [sum(float(task.loss(at)) for task in tasks) / 3 for at in (theta, best, 0 * best)]
    print(f"mean loss: Adam {mean[0]:.3g}, best {mean[1]:.3g}, start {mean[2]:.3g}")
    assert compute_relative_error(theta, best) > 1e-3
    assert mean[0] - mean[1] < 1e-6 * mean[2]


# The method itself, on networks.


class Tiny(Backbone):
    """Two convolutions and a linear layer: [B, 2, 6, 6] to [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 2, 3)
        self.conv2 = nn.Conv2d(2, 3, 3, stride=2)
        self.fc = nn.Linear(3, 3)
        self.relu = nn.ReLU()
        self.width = 3
        self.declare_stage_layers([[("conv1",)], [("conv2",)], [("fc",)]])

    def forward(self, x):
        x = self.relu(self.conv2(self.relu(self.conv1(x))))
        return self.relu(self.fc(x.mean((2, 3))))


def build_tiny_network():
    torch.manual_seed(0)
    network = Network(Tiny(), "data", HeadSpec(("ant", "bee", "cat"))).double()
    with torch.no_grad():
        for layer in (network.backbone.conv1, network.backbone.conv2, network.backbone.fc):
            layer.weight.mul_(
                2.5
            )  # features of size 1: what can be learned stands far above rounding
    linear = LinearisedNetwork(network, slope=0.1, fixed_head=True, frozen=True).eval()
    linear.set_reference_rows("shared", torch.randn(3, 3, dtype=torch.float64))
    return linear


def draw_tasks(tasks, n=12, seed=3, shape=(2, 6, 6), classes=3):
    """Draw images whose mean and labels differ from task to task."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(tasks):
        shift = torch.randn(1, *shape, generator=generator, dtype=torch.float64)
        x = torch.randn(n, *shape, generator=generator, dtype=torch.float64) + shift
        found.append((x, torch.randint(0, classes, (n,), generator=generator)))
    return found


def compute_output_jacobian(network, ctx, x):
    """Return [B, C, parameters], the Jacobian of the logits by everything that moves."""
    rows = []
    for logit in network(x).flatten():
        grads = torch.autograd.grad(
            logit, list(ctx.trainable.values()), retain_graph=True, materialize_grads=True
        )
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows).view(len(x), -1, len(rows[0]))


class Whole:
    """Stands for a curvature: the whole matrix over all that moves, blocks between layers
    included.
    """

    def __init__(self, matrix):
        self.matrix = matrix

    def compute_penalty_and_gradient(self, deltas):
        d = torch.cat([delta.flatten() for delta in deltas.values()])
        product = self.matrix @ d
        parts = product.split([delta.numel() for delta in deltas.values()])
        found = {name: p.view_as(deltas[name]) for name, p in zip(deltas, parts, strict=True)}
        return found, 0.5 * d @ product


class WholeMemory(CurvatureMemory):
    def __init__(self, section, whole):
        super().__init__(section)
        self.whole = whole

    @cached_property
    def curvature(self):
        return self.whole


def compute_mean_loss(network, tasks):
    with torch.no_grad():
        return sum(
            float(compute_squared_errors(network(x), y, ALPHA).mean()) for x, y in tasks
        ) / len(tasks)


def learn_together(network, tasks, asked):
    """Teach the network everything as the method's first task."""
    hand = Hand(network, asked)
    ctx = hand.begin(torch.cat([x for x, _ in tasks]), torch.cat([y for _, y in tasks]))
    minimise_quadratic(hand, ctx)


@pytest.mark.slow
def test_the_method_with_the_whole_curvature_loses_nothing_on_a_convolutional_network() -> None:
    tasks, network, joint = draw_tasks(3, 20), build_tiny_network(), build_tiny_network()
    learn_together(joint, tasks, build_recipe())
    wanted = compute_mean_loss(joint, tasks)
    hand, whole = Hand(network, build_recipe()), None
    for t, (x, y) in enumerate(tasks):
        ctx = hand.begin(x, y)
        section = hand.method.state["curvature"]
        section.json["tasks"] = t
        if whole is not None:
            ctx.cache["memory"] = WholeMemory(section, Whole(whole))
        minimise_quadratic(hand, ctx)
        j = compute_output_jacobian(network, ctx, x)
        own = torch.einsum("nci,ncj->ij", j, j) / len(x)
        whole = own if whole is None else torch.lerp(whole, own, 1 / (t + 1))
    gap = (compute_mean_loss(network, tasks) - wanted) / wanted
    print(
        f"objective gap {gap:.1e}; start {compute_mean_loss(build_tiny_network(), tasks):.1f}, joint {wanted:.1f}"
    )
    assert abs(gap) < 1e-8


def freeze_others(ctx, prefix):
    """Let only parameters with this prefix move."""
    for name in list(ctx.trainable):
        if not name.startswith(prefix):
            ctx.trainable.pop(name).requires_grad_(False)


def learn_layer_in_sequence(network, tasks, asked, prefix):
    """Learn tasks with the method's own curvature, while only one layer moves."""
    hand = Hand(network, asked)
    for x, y in tasks:
        ctx = hand.begin(x, y)
        freeze_others(ctx, prefix)
        minimise_quadratic(hand, ctx)
        hand.end(ctx)


def build_recipe(**method):
    return {"method": {"name": "dlcft", "head_mode": "linear", "slope": 0.1, **method}}


def copy_head_rows(network):
    return torch.cat([network.head.weight, network.head.bias[:, None]], 1).detach()


def compute_best_rows(network, tasks, decay=0.0):
    """Return the head with the least mean over tasks of mean losses."""
    with torch.no_grad():
        gram, cross = decay * len(tasks) * torch.eye(4, dtype=torch.float64), 0
        for x, y in tasks:
            z = network.backbone(x)
            z = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
            gram, cross = (
                gram + z.T @ z / len(z),
                cross - z.T @ subtract_scaled_onehot_targets(0 * network(x), y, ALPHA) / len(z),
            )
        return torch.linalg.solve(gram, cross).T


@pytest.mark.parametrize("weighting", ["task", "samples"])
@pytest.mark.parametrize("curvature", ["diagonal", "kfac", "tkfac"])
def test_a_head_that_moves_alone_loses_nothing_with_what_is_really_kept(
    weighting, curvature
) -> None:
    """Its curvature is exact, whatever is kept of the other layers."""
    tasks = [draw_tasks(1, n, seed)[0] for n, seed in ((12, 1), (9, 2), (15, 3))]
    network, joint = build_tiny_network(), build_tiny_network()
    learn_layer_in_sequence(
        network, tasks, build_recipe(weighting=weighting, curvature=curvature), "head."
    )
    whole = [tuple(torch.cat(parts) for parts in zip(*tasks, strict=True))]
    wanted = compute_best_rows(joint, tasks if weighting == "task" else whole)
    assert compute_relative_error(copy_head_rows(network), wanted) < 1e-10


def test_a_task_that_stops_early_is_repaired_by_the_gradient_it_left() -> None:
    tasks, found = draw_tasks(3), {}
    for gradient in ("none", "objective"):
        network = build_tiny_network()
        hand = Hand(network, build_recipe(gradient=gradient))
        for t, (x, y) in enumerate(tasks):
            ctx = hand.begin(x, y)
            freeze_others(ctx, "head.")
            minimise_quadratic(hand, ctx)
            if t < 2:
                set_trainable(
                    ctx,
                    flatten_trainable(ctx)
                    + torch.linspace(-1, 1, len(flatten_trainable(ctx)), dtype=torch.float64),
                )
            hand.end(ctx)
        found[gradient] = compute_relative_error(
            copy_head_rows(network), compute_best_rows(build_tiny_network(), tasks)
        )
    assert found["objective"] < 1e-10 < 1e-3 < found["none"]


def test_a_decay_that_is_counted_once_ends_where_all_tasks_together_do() -> None:
    decay, tasks, network = 0.3, draw_tasks(3), build_tiny_network()
    learn_layer_in_sequence(network, tasks, build_recipe(decay=decay), "head.")
    assert (
        compute_relative_error(
            copy_head_rows(network), compute_best_rows(build_tiny_network(), tasks, decay)
        )
        < 1e-10
    )


# What approximations cost: five tasks, in closed form.


def build_small_network(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.LeakyReLU(0.1),
        nn.Linear(5, 3),
    ).double()
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.weight.mul_(2)  # features of size 1
    return network


def compute_jacobian(network, x):
    rows = []
    for output in network(x).flatten():
        grads = torch.autograd.grad(output, list(network.parameters()), retain_graph=True)
        of_layers = [
            torch.cat([w.flatten(1), b[:, None]], 1).flatten()
            for w, b in zip(grads[::2], grads[1::2], strict=True)
        ]
        rows.append(torch.cat(of_layers))
    return torch.stack(rows).view(len(x), -1, len(rows[0])).detach()


def build_dense_matrix(curvature, network):
    """Return the whole matrix of a curvature, zero between layers."""
    parts = []
    for name, block in curvature.blocks.items():
        o = network.get_submodule(name).weight.shape[0]
        w = block.count_displacement_columns(o)
        units = torch.eye(o * w, dtype=torch.float64).view(-1, o, w)
        parts.append(
            torch.stack([block.multiply_by_curvature(unit).flatten() for unit in units], 1)
        )
    return torch.block_diag(*parts)


KINDS = ("none", "diagonal", "kfac", "tkfac", "exact", "whole")


def measure_excess_losses(seed, count=5, n=60):
    """Return by what is kept how far the mean loss over five tasks exceeds the least possible."""
    network = build_small_network(seed)
    tasks = draw_tasks(count, n, 100 + seed, shape=(2, 6, 6))
    facts = []
    for x, y in tasks:
        j = compute_jacobian(network, x)
        r = -subtract_scaled_onehot_targets(network(x).detach(), y, ALPHA)
        facts.append((torch.einsum("nci,ncj->ij", j, j) / n, torch.einsum("nci,nc->i", j, r) / n))
    zero = torch.zeros(len(facts[0][1]), dtype=torch.float64)
    h, b = (sum(f[i] for f in facts) / count for i in (0, 1))
    best = solve_nearest(h, b, zero)
    layers = list_layers_owning_parameters(
        network, [name for name, _ in network.named_parameters()]
    )
    found = {}
    for kind in KINDS:
        theta, merged, whole = zero, None, None
        for t, ((x, _), (own, right)) in enumerate(zip(tasks, facts, strict=True)):
            w = 1 / (t + 1)
            s = (1 - w) * whole if whole is not None else 0 * own
            theta = solve_nearest(w * own + s, w * right + s @ theta, theta)
            if kind == "whole":
                whole = own if whole is None else torch.lerp(whole, own, w)
            elif kind != "none":
                estimate = CurvatureEstimator(network, network, dict.fromkeys(layers, kind))
                estimate.add_examples(x, make_basis_vector_cotangents)
                now = LayerCurvatures(estimate.build_curvature_blocks())
                merged = now if merged is None else merged.average_with(now, w)
                whole = build_dense_matrix(merged, network)
        found[kind] = float(0.5 * (theta - best) @ h @ (theta - best))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, pytest.param(6, marks=pytest.mark.campaign)])
def test_what_is_lost_falls_with_what_is_kept(seeds) -> None:
    """none > diagonal > K-FAC ≥ trace-restricted > exact blocks > everything, which loses
    nothing.
    """
    runs = [measure_excess_losses(seed) for seed in range(seeds)]
    mean = {kind: sum(run[kind] for run in runs) / len(runs) for kind in KINDS}
    print({kind: f"{value:.3g}" for kind, value in mean.items()})
    assert (
        mean["none"]
        > mean["diagonal"]
        > mean["kfac"]
        >= mean["tkfac"]
        > mean["exact"]
        > mean["whole"]
    )
    assert mean["whole"] < 1e-10 * mean["none"]
