"""With the whole curvature, learning a linear model task after task ends where learning all tasks
together does.

First the recursion on random linear models f = f0 + J θ, with the blocks and the merging that are
used in earnest; then the method itself on small networks, by its own losses and gradients; and how
much is lost by each approximation.
"""

from functools import cached_property

import pytest
import torch
from linear import Hand, flat, minimise, place
from torch import nn

from core.learning.curvature.block import ExactCurvatureBlock
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import make_basis_vector_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters
from core.learning.methods.dlcft_memory import CurvatureMemory
from core.learning.methods.squared_loss import compute_squared_errors, compute_target_residuals
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
        r = -compute_target_residuals(f0, y, ALPHA)
        self.b = torch.einsum("nci,nc->i", j, r) / n
        self.constant = 0.5 * r.square().sum() / n

    def loss(self, theta):
        return 0.5 * theta @ self.h @ theta - self.b @ theta + self.constant

    def gradient(self, theta):
        return self.h @ theta - self.b

    @property
    def curvature(self):
        return LayerCurvatures({"all": ExactCurvatureBlock(self.h)})


def tasks_of(parameters, sizes):
    generator = torch.Generator().manual_seed(0)
    return [Linear(parameters, n, generator) for n in sizes]


def matrix(curvature):
    """S as the penalty's gradient multiplies by it."""
    block = curvature.blocks["all"]
    units = torch.eye(block.count_displacement_columns(1), dtype=torch.float64)
    return torch.stack(
        [
            curvature.compute_penalty_and_gradient({"all": unit[None]})[0]["all"][0]
            for unit in units
        ],
        1,
    )


def shares_of(tasks, weighting):
    """The newest task's share of the mean so far."""
    sizes = [task.n if weighting == "samples" else 1 for task in tasks]
    return [sizes[t] / sum(sizes[: t + 1]) for t in range(len(tasks))]


def solved(a, right, start):
    """The solution of a θ = right that is nearest to `start`."""
    return start + torch.linalg.pinv(a, rtol=1e-11, hermitian=True) @ (right - a @ start)


def sequentially(tasks, decay=0.0, weighting="task", centred=True, first_order=False, disturb=None):
    """θ after each task. disturb: added to θ after the first."""
    parameters = len(tasks[0].b)
    eye = torch.eye(parameters, dtype=torch.float64)
    theta, memory, slope, found = (
        torch.zeros(parameters, dtype=torch.float64),
        None,
        0 * tasks[0].b,
        [],
    )
    for task, w in zip(tasks, shares_of(tasks, weighting), strict=True):
        s = (1 - w) * (matrix(memory) + decay * centred * eye) if memory else 0 * eye
        plain = (
            decay if (centred is False and memory) else 0.0
        )  # decay of its own in every task, as optimizers do it
        a = w * (task.h + decay * eye) + s + (1 - w) * plain * eye
        before = theta
        theta = solved(a, w * task.b + s @ theta - (1 - w) * slope, theta)
        if disturb is not None and memory is None:
            theta = theta + disturb
        if first_order:
            kept = slope + matrix(memory) @ (theta - before) if memory else slope
            slope = (1 - w) * kept + w * task.gradient(theta)
        memory = memory.average_with(task.curvature, w) if memory else task.curvature
        found.append(theta)
    return found


def jointly(tasks, decay=0.0, weighting="task"):
    sizes = torch.tensor(
        [task.n if weighting == "samples" else 1 for task in tasks], dtype=torch.float64
    )
    weights = sizes / sizes.sum()
    h = sum(w * task.h for w, task in zip(weights, tasks, strict=True))
    b = sum(w * task.b for w, task in zip(weights, tasks, strict=True))
    return solved(h + decay * torch.eye(len(b), dtype=torch.float64), b, torch.zeros_like(b))


def error(found, wanted):
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
    tasks = tasks_of(parameters, sizes)
    assert error(sequentially(tasks, **settings)[-1], jointly(tasks, **settings)) < 1e-10


def test_it_does_so_after_every_task() -> None:
    tasks = tasks_of(30, (40, 40, 40, 40, 40))
    for t, theta in enumerate(sequentially(tasks)):
        assert error(theta, jointly(tasks[: t + 1])) < 1e-10


def test_the_order_of_tasks_does_not_matter() -> None:
    tasks = tasks_of(30, (40, 30, 20))
    assert error(sequentially(tasks[::-1])[-1], sequentially(tasks)[-1]) < 1e-10


def test_a_decay_that_is_counted_in_every_task_ends_elsewhere() -> None:
    tasks = tasks_of(60, (10, 12, 8))
    assert (
        error(sequentially(tasks, decay=1e-3, centred=False)[-1], jointly(tasks, decay=1e-3)) > 1e-3
    )


@pytest.mark.parametrize(("first_order", "exact"), [(False, False), (True, True)])
def test_a_task_that_did_not_converge_leaves_a_gradient_that_must_be_kept(
    first_order, exact
) -> None:
    tasks = tasks_of(30, (40, 40, 40))
    push = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = sequentially(tasks, first_order=first_order, disturb=push)
    wrong = error(found[-1], jointly(tasks))
    assert wrong < 1e-10 if exact else wrong > 1e-3


@pytest.mark.slow
def test_adam_ends_at_the_same_objective_but_elsewhere_with_more_parameters_than_equations() -> (
    None
):
    tasks = tasks_of(100, (6, 6, 6))
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
    best = jointly(tasks)
    mean = [sum(float(task.loss(at)) for task in tasks) / 3 for at in (theta, best, 0 * best)]
    print(f"mean loss: Adam {mean[0]:.3g}, best {mean[1]:.3g}, start {mean[2]:.3g}")
    assert error(theta, best) > 1e-3
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


def tiny():
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


def stream(tasks, n=12, seed=3, shape=(2, 6, 6), classes=3):
    """Images whose mean and labels differ from task to task."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(tasks):
        shift = torch.randn(1, *shape, generator=generator, dtype=torch.float64)
        x = torch.randn(n, *shape, generator=generator, dtype=torch.float64) + shift
        found.append((x, torch.randint(0, classes, (n,), generator=generator)))
    return found


def outputs_jacobian(network, ctx, x):
    """[B, C, parameters] of the logits by all that moves."""
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


def mean_loss(network, tasks):
    with torch.no_grad():
        return sum(
            float(compute_squared_errors(network(x), y, ALPHA).mean()) for x, y in tasks
        ) / len(tasks)


def learned_together(network, tasks, asked):
    """The same network after the method's first task, on everything."""
    hand = Hand(network, asked)
    ctx = hand.begin(torch.cat([x for x, _ in tasks]), torch.cat([y for _, y in tasks]))
    minimise(hand, ctx)


@pytest.mark.slow
def test_the_method_with_the_whole_curvature_loses_nothing_on_a_convolutional_network() -> None:
    tasks, network, joint = stream(3, 20), tiny(), tiny()
    learned_together(joint, tasks, recipe())
    wanted = mean_loss(joint, tasks)
    hand, whole = Hand(network, recipe()), None
    for t, (x, y) in enumerate(tasks):
        ctx = hand.begin(x, y)
        section = hand.method.state["curvature"]
        section.json["tasks"] = t
        if whole is not None:
            ctx.cache["memory"] = WholeMemory(section, Whole(whole))
        minimise(hand, ctx)
        j = outputs_jacobian(network, ctx, x)
        own = torch.einsum("nci,ncj->ij", j, j) / len(x)
        whole = own if whole is None else torch.lerp(whole, own, 1 / (t + 1))
    gap = (mean_loss(network, tasks) - wanted) / wanted
    print(f"objective gap {gap:.1e}; start {mean_loss(tiny(), tasks):.1f}, joint {wanted:.1f}")
    assert abs(gap) < 1e-8


def only(ctx, prefix):
    """Let nothing move but parameters of this prefix."""
    for name in list(ctx.trainable):
        if not name.startswith(prefix):
            ctx.trainable.pop(name).requires_grad_(False)


def sequence(network, tasks, asked, prefix):
    """The method with its own curvature, a layer alone moving."""
    hand = Hand(network, asked)
    for x, y in tasks:
        ctx = hand.begin(x, y)
        only(ctx, prefix)
        minimise(hand, ctx)
        hand.end(ctx)


def recipe(**method):
    return {"method": {"name": "dlcft", "head_mode": "linear", "slope": 0.1, **method}}


def rows(network):
    return torch.cat([network.head.weight, network.head.bias[:, None]], 1).detach()


def best_rows(network, tasks, decay=0.0):
    """The head of the least mean over tasks of mean losses."""
    with torch.no_grad():
        gram, cross = decay * len(tasks) * torch.eye(4, dtype=torch.float64), 0
        for x, y in tasks:
            z = network.backbone(x)
            z = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
            gram, cross = (
                gram + z.T @ z / len(z),
                cross - z.T @ compute_target_residuals(0 * network(x), y, ALPHA) / len(z),
            )
        return torch.linalg.solve(gram, cross).T


@pytest.mark.parametrize("weighting", ["task", "samples"])
@pytest.mark.parametrize("curvature", ["diagonal", "kfac", "tkfac"])
def test_a_head_that_moves_alone_loses_nothing_with_what_is_really_kept(
    weighting, curvature
) -> None:
    """Its curvature is exact, whatever is kept of the other layers."""
    tasks = [stream(1, n, seed)[0] for n, seed in ((12, 1), (9, 2), (15, 3))]
    network, joint = tiny(), tiny()
    sequence(network, tasks, recipe(weighting=weighting, curvature=curvature), "head.")
    whole = [tuple(torch.cat(parts) for parts in zip(*tasks, strict=True))]
    wanted = best_rows(joint, tasks if weighting == "task" else whole)
    assert error(rows(network), wanted) < 1e-10


def test_a_task_that_stops_early_is_repaired_by_the_gradient_it_left() -> None:
    tasks, found = stream(3), {}
    for gradient in ("none", "objective"):
        network = tiny()
        hand = Hand(network, recipe(gradient=gradient))
        for t, (x, y) in enumerate(tasks):
            ctx = hand.begin(x, y)
            only(ctx, "head.")
            minimise(hand, ctx)
            if t < 2:
                place(ctx, flat(ctx) + torch.linspace(-1, 1, len(flat(ctx)), dtype=torch.float64))
            hand.end(ctx)
        found[gradient] = error(rows(network), best_rows(tiny(), tasks))
    assert found["objective"] < 1e-10 < 1e-3 < found["none"]


def test_a_decay_that_is_counted_once_ends_where_all_tasks_together_do() -> None:
    decay, tasks, network = 0.3, stream(3), tiny()
    sequence(network, tasks, recipe(decay=decay), "head.")
    assert error(rows(network), best_rows(tiny(), tasks, decay)) < 1e-10


# What approximations cost: five tasks, in closed form.


def small_network(seed):
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


def jacobian(network, x):
    rows = []
    for output in network(x).flatten():
        grads = torch.autograd.grad(output, list(network.parameters()), retain_graph=True)
        of_layers = [
            torch.cat([w.flatten(1), b[:, None]], 1).flatten()
            for w, b in zip(grads[::2], grads[1::2], strict=True)
        ]
        rows.append(torch.cat(of_layers))
    return torch.stack(rows).view(len(x), -1, len(rows[0])).detach()


def dense(curvature, network):
    """The whole matrix of a curvature, zero between layers."""
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


def excess(seed, count=5, n=60):
    """By what is kept: the mean loss over five tasks beyond the least possible."""
    network = small_network(seed)
    tasks = stream(count, n, 100 + seed, shape=(2, 6, 6))
    facts = []
    for x, y in tasks:
        j = jacobian(network, x)
        r = -compute_target_residuals(network(x).detach(), y, ALPHA)
        facts.append((torch.einsum("nci,ncj->ij", j, j) / n, torch.einsum("nci,nc->i", j, r) / n))
    zero = torch.zeros(len(facts[0][1]), dtype=torch.float64)
    h, b = (sum(f[i] for f in facts) / count for i in (0, 1))
    best = solved(h, b, zero)
    layers = list_layers_owning_parameters(
        network, [name for name, _ in network.named_parameters()]
    )
    found = {}
    for kind in KINDS:
        theta, merged, whole = zero, None, None
        for t, ((x, _), (own, right)) in enumerate(zip(tasks, facts, strict=True)):
            w = 1 / (t + 1)
            s = (1 - w) * whole if whole is not None else 0 * own
            theta = solved(w * own + s, w * right + s @ theta, theta)
            if kind == "whole":
                whole = own if whole is None else torch.lerp(whole, own, w)
            elif kind != "none":
                estimate = CurvatureEstimator(network, network, dict.fromkeys(layers, kind))
                estimate.add_examples(x, make_basis_vector_cotangents)
                now = LayerCurvatures(estimate.build_curvature_blocks())
                merged = now if merged is None else merged.average_with(now, w)
                whole = dense(merged, network)
        found[kind] = float(0.5 * (theta - best) @ h @ (theta - best))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, pytest.param(6, marks=pytest.mark.campaign)])
def test_what_is_lost_falls_with_what_is_kept(seeds) -> None:
    """none > diagonal > K-FAC ≥ trace-restricted > exact blocks > everything, which loses
    nothing.
    """
    runs = [excess(seed) for seed in range(seeds)]
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
