"""DLCFT: its objective and its weights, the penalty, what it keeps, what it forecasts, and whole
jobs.
"""

import math

import pytest
import torch
from linear import (
    CLASSES,
    Hand,
    Pretrained,
    build_linearised_network,
    compute_relative_error,
    draw_displacement,
    flatten_trainable,
    minimise_quadratic,
    set_displacement,
    set_trainable,
)
from recipes import complete_recipe, resolve_patch
from streams import Bench, Killed, Script
from torch import nn

from core.errors import InvalidRecipe
from core.learning.curvature.block import HeadGramCurvatureBlock
from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.data.dataset import DataError
from core.learning.methods import dlcft, registry
from core.learning.methods.dlcft import DlcftMethod, _set_norm_statistics_from_task_images
from core.learning.methods.dlcft_memory import CurvatureMemory
from core.learning.methods.squared_loss import append_column_of_ones, compute_squared_errors
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.backbone import Backbone
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.state import MethodState
from core.learning.training.loop import NonFiniteTrainingError, TrainingLoop

ALPHA = 15.0


def build_small_network(
    scenario="data", fixed_head=False, classes=CLASSES, hidden=(5, 4), seed=0, slope=0.1
):
    """Build a frozen linearised network in float64 with random rows, for [B, 2, 3, 3]."""
    torch.manual_seed(seed)
    heads = HeadSpec() if scenario == "task" else HeadSpec(tuple(classes))
    own = build_network(
        {"name": "mlp", "hidden": list(hidden)}, ImageSpec(3, 2), scenario, heads
    ).double()
    network = LinearisedNetwork(own, slope=slope, fixed_head=fixed_head, frozen=True).eval()
    if network.head is not None:
        with torch.no_grad():
            network.head.weight.normal_()
            network.head.bias.normal_()
        if fixed_head:
            network.set_reference_rows(
                "shared", torch.randn(len(classes), hidden[-1], dtype=torch.float64)
            )
    return network


def draw_examples(n=9, seed=1, classes=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, 3, 3, generator=g, dtype=torch.float64)
    return x, torch.arange(n) % classes


THREE = [draw_examples(9, 1), draw_examples(6, 2), draw_examples(5, 3)]
"""Three tasks."""


def build_hand(scenario="data", network=None, **hyper):
    method = {"name": "dlcft", "slope": 0.1, "curvature": "tkfac", **hyper}
    fixed = method.get("head_mode") == "linear"
    network = network or build_small_network(scenario, fixed)
    return Hand(network, {"method": method, "batch_size": 4, "augment": "none"}, scenario)


def begin_last_task(run, tasks):
    """Return the context of the last task, after each of the others was moved a little at random
    and ended.
    """
    for seed, (x, y) in enumerate(tasks[:-1]):
        ctx = run.begin(x, y)
        move_away(ctx, seed, 0.1)
        run.end(ctx)
    return run.begin(*tasks[-1])


def move_away(ctx, seed=9, by=0.3):
    g = torch.Generator().manual_seed(seed)
    set_trainable(
        ctx,
        flatten_trainable(ctx)
        + by * torch.randn(len(flatten_trainable(ctx)), generator=g, dtype=torch.float64),
    )


def stir_parameters(ctx, seed=0, prefix="displacement."):
    names = [name for name in ctx.trainable if name.startswith(prefix)]
    for name, d in draw_random_change(ctx, names, seed, 1.0).items():
        ctx.trainable[name].data.add_(d)


def compute_penalty_gradients(run, ctx):
    """Return the gradients that `add_penalty_gradients` adds, by name."""
    for parameter in ctx.trainable.values():
        parameter.grad = torch.zeros_like(parameter)
    run.method.add_penalty_gradients(ctx)
    return {name: p.grad.clone() for name, p in ctx.trainable.items()}


def concatenate_flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


def compute_mean_loss(network, x, y):
    return compute_squared_errors(network(x), y, ALPHA).mean()


def compute_loss_gradient(ctx, x, y):
    """Return the gradient of the mean loss by everything that moves, flat."""
    return concatenate_flat(
        torch.autograd.grad(compute_mean_loss(ctx.network, x, y), list(ctx.trainable.values()))
    )


def draw_random_change(ctx, names, seed=3, by=0.1):
    g = torch.Generator().manual_seed(seed)
    return {
        n: by * torch.randn(ctx.trainable[n].shape, generator=g, dtype=torch.float64) for n in names
    }


def build_dense_curvature(section, parameters):
    """Build H over the named parameters from the stored tensors alone, with Kronecker products
    written out.
    """
    stored, layers = section.tensors, section.json["layers"]
    names, sizes = list(parameters), [p.numel() for p in parameters.values()]
    start = dict(zip(names, torch.tensor([0, *sizes]).cumsum(0).tolist(), strict=False))
    total = torch.zeros(sum(sizes), sum(sizes), dtype=torch.float64)
    for layer, of in layers.items():
        weight, bias = f"{layer}.weight", f"{layer}.bias"
        o = parameters[weight].shape[0]

        def read_mean_tensor(key, layer=layer):
            (found,) = [t for k, t in stored.items() if k.startswith(f"mean/{layer}/{key}")]
            return found.double()

        if of["kind"] == "diagonal":
            block = torch.diag(read_mean_tensor("values").flatten())
        elif of["kind"] == "kfac":
            block = torch.kron(read_mean_tensor("g"), read_mean_tensor("a"))
        elif of["kind"] == "tkfac":
            block = torch.kron(read_mean_tensor("q"), read_mean_tensor("p")) / read_mean_tensor(
                "delta"
            )
        else:
            block = torch.kron(torch.eye(o, dtype=torch.float64), read_mean_tensor("a"))
        w = block.shape[0] // o
        rows = start[weight] + torch.arange(o)[:, None] * (w - 1) + torch.arange(w - 1)
        index = torch.cat([rows, start[bias] + torch.arange(o)[:, None]], 1).flatten()
        total[index[:, None], index] = block
    return total


# The objective.


@pytest.mark.parametrize(("weighting", "share"), [("task", 1 / 3), ("samples", 5 / 20)])
def test_the_new_tasks_share_is_one_in_t_or_that_of_its_images(weighting, share) -> None:
    run = build_hand(weighting=weighting)
    ctx = begin_last_task(run, THREE)
    found, alone = (
        float(run.terms(ctx)["task"].detach()),
        float(compute_mean_loss(ctx.network, *THREE[2]).detach()),
    )
    assert found == pytest.approx(share * alone, rel=1e-12)
    assert run.method._compute_penalty_weight(ctx) == pytest.approx(1 - share)


@pytest.mark.parametrize(("hyper", "alpha"), [({}, ALPHA), ({"alpha": 3.0}, 3.0)])
def test_the_first_task_is_its_loss_alone_and_alpha_scales_the_targets(hyper, alpha) -> None:
    run, (x, y) = build_hand(**hyper), draw_examples()
    ctx = run.begin(x, y)
    move_away(ctx)
    terms = run.terms(ctx)
    assert terms.keys() == {"task"}
    assert torch.equal(terms["task"], compute_squared_errors(ctx.network(x), y, alpha).mean())
    assert run.method.compute_penalty(ctx) == 0 and not any(
        g.any() for g in compute_penalty_gradients(run, ctx).values()
    )


@pytest.mark.parametrize("curvature", ["diagonal", "kfac", "tkfac"])
@pytest.mark.parametrize("scenario", ["data", "class"])
def test_the_penalty_is_the_quadratic_form_of_what_is_stored(curvature, scenario) -> None:
    run = build_hand(scenario, curvature=curvature, buffer=4)
    ctx = begin_last_task(run, THREE)
    assert run.method.compute_penalty(ctx) == 0
    assert not any(g.any() for g in compute_penalty_gradients(run, ctx).values())
    anchor = flatten_trainable(ctx)
    move_away(ctx)
    h, d = (
        build_dense_curvature(run.method.state["curvature"], ctx.trainable),
        flatten_trainable(ctx) - anchor,
    )
    strength = 2 / 3 * (0.5 if scenario == "class" else 1)
    gradient = concatenate_flat(compute_penalty_gradients(run, ctx).values())
    assert run.method.compute_penalty(ctx) == pytest.approx(
        float(strength / 2 * d @ h @ d), rel=1e-12
    )
    assert compute_relative_error(gradient, strength * h @ d) <= 1e-12
    assert float(torch.linalg.eigvalsh(h)[0]) >= -1e-9 * float(torch.linalg.eigvalsh(h)[-1])


@pytest.mark.parametrize("curvature", ["diagonal", "kfac", "tkfac"])
def test_what_is_stored_is_the_mean_of_both_tasks_measured_together(curvature) -> None:
    apart, together = build_hand(curvature=curvature), build_hand(curvature=curvature)
    (x, y), (x2, y2) = draw_examples(9, 1), draw_examples(9, 2)
    for data in ((x, y), (x2, y2)):
        apart.end(apart.begin(*data))
    together.end(together.begin(torch.cat([x, x2]), torch.cat([y, y2])))
    of_apart, of_both = (run.method.state["curvature"].tensors for run in (apart, together))
    assert of_apart.keys() == of_both.keys()
    for key, wanted in of_both.items():
        atol = 1e-12 * float(wanted.abs().max())
        assert torch.allclose(of_apart[key], wanted, rtol=1e-12, atol=atol), key


def test_in_the_task_scenario_a_head_is_free_of_the_penalty() -> None:
    run = build_hand("task")
    for task, (x, y) in enumerate([draw_examples(9, 1), draw_examples(6, 2)], 1):
        run.network.add_task_classes(task, CLASSES, "default", torch.Generator().manual_seed(task))
        ctx = run.begin(x, y)
        move_away(ctx)
        if task == 1:
            run.end(ctx)
    found = compute_penalty_gradients(run, ctx)
    assert not any(g.any() for name, g in found.items() if name.startswith("heads."))
    assert all(
        g.any() for name, g in found.items() if name.endswith("weight") and name.startswith("disp")
    )


# The class scenario.


def test_an_unseen_class_outputs_zero_and_learns_nothing() -> None:
    run = build_hand("class")
    run.end(run.begin(*draw_examples()))
    run.network.add_task_classes(2, ["dog"], "zero", torch.Generator())
    x, y = draw_examples(6, 2)
    ctx = run.begin(x, y)
    before = compute_squared_errors(ctx.network(x)[:, :3], y, ALPHA)
    assert not ctx.network(x)[:, 3].any()
    assert torch.equal(compute_squared_errors(ctx.network(x), y, ALPHA), before)
    run.gradient(ctx)
    assert not ctx.trainable["head.weight"].grad[3].any() and not ctx.trainable["head.bias"].grad[3]


def test_a_new_row_is_held_at_zero_by_the_curvature_of_the_old_ones() -> None:
    run = build_hand("class")
    run.end(run.begin(*draw_examples()))
    run.network.add_task_classes(2, ["dog"], "zero", torch.Generator())
    ctx = run.begin(*draw_examples(6, 2))
    run.method.erase_task_examples({1})
    row = torch.tensor([1.0, -2.0, 0.5, 3.0, 2.0], dtype=torch.float64)
    with torch.no_grad():
        ctx.trainable["head.weight"][3], ctx.trainable["head.bias"][3] = row[:4], row[4]
    found = compute_penalty_gradients(run, ctx)
    z = append_column_of_ones(
        run.network.compute_value_and_derivative(draw_examples()[0])[0].detach()
    )
    wanted = 0.5 * (z.T @ z / 9) @ row
    assert torch.allclose(found["head.weight"][3], wanted[:4], rtol=1e-12)
    assert torch.allclose(found["head.bias"][3], wanted[4], rtol=1e-12)
    assert not found["head.weight"][:3].any()


def compute_hessian(network, x, y):
    """Return the Hessian of the mean loss over (ψ, W, b), by autograd, and the index of each name."""
    named = {n: p for n, p in network.named_parameters() if not n.startswith("backbone.")}
    for parameter in named.values():
        parameter.requires_grad_(True)
    loss = compute_squared_errors(
        network.compute_expansion_logits(*network.expand_by_forward_mode(x)), y, ALPHA
    ).mean()
    grads = torch.autograd.grad(loss, list(named.values()), create_graph=True)
    rows = [
        concatenate_flat(
            torch.autograd.grad(g, list(named.values()), retain_graph=True, materialize_grads=True)
        )
        for grad in grads
        for g in grad.flatten()
    ]
    places = torch.arange(len(rows)).split([p.numel() for p in named.values()])
    return torch.stack(rows), {
        name: i.view_as(named[name]) for name, i in zip(named, places, strict=True)
    }


def test_an_appended_row_has_the_curvature_of_the_others_and_none_with_them() -> None:
    """On a real network, where its row is zero: the Hessian's blocks."""
    network = build_small_network("class")
    set_displacement(network, draw_displacement(network, 4))
    x, y = draw_examples()
    network.add_task_classes(2, ["dog"], "zero", torch.Generator())
    h, index = compute_hessian(network, x, y)

    rows = torch.cat([index["head.weight"], index["head.bias"][:, None]], 1)
    z = append_column_of_ones(network.features(x)).detach()
    for row in (0, 3):
        assert compute_relative_error(h[rows[row][:, None], rows[row]], z.T @ z / 9) <= 1e-12
    new = rows[3][:, None]
    for other in range(3):
        assert not h[new, rows[other]].any()
    psi = concatenate_flat(i for name, i in index.items() if name.startswith("displacement."))
    assert float(h[new, psi].abs().max()) <= 1e-15 * float(h.abs().max())


def test_half_of_the_old_tasks_share_is_replay() -> None:
    run = build_hand("class", buffer=6, **{"lambda": 0.3})
    ctx = begin_last_task(run, THREE)
    terms = run.terms(ctx)
    assert terms.keys() == {"task", "replay"} and float(terms["replay"].detach()) > 0
    assert run.method._compute_penalty_weight(ctx) == pytest.approx(2 / 3 * 0.3)
    wanted = float(compute_mean_loss(ctx.network, *THREE[2]).detach()) / 3
    assert float(terms["task"].detach()) == pytest.approx(wanted, rel=1e-9)


def test_replay_is_the_mean_loss_of_stored_images_times_its_share() -> None:
    run = build_hand("class", buffer=3, **{"lambda": 0.25})  # all three are drawn
    ctx = begin_last_task(run, THREE[:2])
    ctx.inputs = lambda images: (images.permute(0, 3, 1, 2).double() - 128) / 20
    held = run.method.state["buffer"].tensors
    wanted = compute_mean_loss(ctx.network, ctx.inputs(held["images"]), held["labels"])
    assert float(run.terms(ctx)["replay"]) == pytest.approx(0.5 * 0.75 * float(wanted), rel=1e-9)


def test_an_empty_buffer_leaves_the_whole_share_to_the_penalty() -> None:
    run = build_hand("class", buffer=6)
    ctx = begin_last_task(run, THREE[:2])
    assert run.method._compute_penalty_weight(ctx) == pytest.approx(0.25)
    run.method.erase_task_examples({1})
    assert run.method._compute_penalty_weight(ctx) == pytest.approx(0.5)
    assert run.terms(ctx).keys() == {"task"}


def test_the_buffer_is_offered_every_image_once_when_a_task_ends() -> None:
    run = build_hand("class", buffer=6)
    ctx = run.begin(*draw_examples(9, 1))
    (batch,) = ctx.examples()
    for _ in range(5):
        run.method.compute_loss_terms(ctx, batch)
        run.method.after_step(ctx, batch)
    assert (
        "seen" not in run.method.state["buffer"].json
        or run.method.state["buffer"].json["seen"] == 0
    )
    run.end(ctx)
    section = run.method.state["buffer"]
    assert section.json["seen"] == 9 and len(section.tensors["labels"]) == 6
    run.end(run.begin(*draw_examples(7, 2)))
    assert section.json["seen"] == 16 and len(section.tensors["labels"]) == 6


def make_bench(tmp_path, scenario="class", **settings):
    settings = {"n": 24, "recipe": {"epochs": 1, "augment": "none"}, **settings}
    return Pretrained(tmp_path, scenario, {"name": "mlp", "hidden": [6]}, **settings)


def read_buffer(run):
    return run.tensors("buffer")["images"], run.tensors("buffer")["labels"]


@pytest.mark.parametrize("recipe", [{"batch_size": 7}, {"epochs": 3}, {"optimizer": {"lr": 0.01}}])
def test_what_the_buffer_keeps_does_not_depend_on_how_the_task_was_learned(
    recipe, tmp_path
) -> None:
    bench = make_bench(tmp_path)
    method = {"name": "dlcft", "buffer": 5}
    one, other = (
        read_buffer(bench.learn_task(1, method=method, **asked))
        for asked in ({"batch_size": 4}, recipe)
    )
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_another_seed_keeps_other_images(tmp_path) -> None:
    bench = make_bench(tmp_path)
    method = {"name": "dlcft", "buffer": 5}
    one, again, other = (
        read_buffer(bench.learn_task(1, method=method, seed=seed))[0] for seed in (0, 0, 1)
    )
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.slow
def test_every_image_has_the_same_chance_to_be_kept() -> None:
    """Chi-square over 400 seeds, of two tasks of 8 and 12 images: 19 degrees of freedom, 43.8 at
    0.1 %.
    """
    counts, seeds, capacity = torch.zeros(20), 400, 5
    network = build_small_network("class", hidden=(2,))
    x = torch.zeros(20, 2, 3, 3, dtype=torch.float64)
    method = {"name": "dlcft", "slope": 0.1, "buffer": capacity}
    for seed in range(seeds):
        run = Hand(network, {"method": method, "seed": seed}, "class")
        for first, n in ((0, 8), (8, 12)):
            ctx = run.begin(x[:n], torch.zeros(n, dtype=torch.int64))
            (batch,) = ctx.examples()
            marks = torch.arange(first, first + n).to(torch.uint8).view(-1, 1, 1, 1)
            batch.raw = lambda rows, marks=marks: marks[rows]
            run.method._open_reservoir(ctx).offer_items_to_reservoir(batch.raw, batch.y, ctx.task)
        counts[run.method.state["buffer"].tensors["images"].flatten().long()] += 1
    expected = seeds * capacity / 20
    statistic = float(((counts - expected) ** 2 / (expected * (1 - capacity / 20))).sum())
    assert counts.sum() == seeds * capacity and statistic < 43.8


def test_growing_keeps_old_rows_anchored_where_they_were_and_new_ones_at_zero() -> None:
    run = build_hand("class")
    run.end(run.begin(*draw_examples()))
    old = run.network.head.weight.detach().clone()
    run.network.add_task_classes(2, ["dog"], "zero", torch.Generator())
    ctx = run.begin(*draw_examples(6, 2))
    assert torch.equal(run.network.head.weight[:3], old) and not run.network.head.weight[3].any()
    deltas = run.method._compute_displacements(ctx)
    assert deltas["head.weight"].shape == (4, 4) and not any(d.any() for d in deltas.values())


# Options.


def test_decay_is_counted_once_over_all_tasks() -> None:
    found = []
    for run in (build_hand(decay=0.2), build_hand()):
        ctx = begin_last_task(run, THREE[:2])
        anchor = flatten_trainable(ctx)
        move_away(ctx)
        found.append(concatenate_flat(compute_penalty_gradients(run, ctx).values()))
    wanted = 0.2 * (0.5 * flatten_trainable(ctx) + 0.5 * (flatten_trainable(ctx) - anchor))
    assert compute_relative_error(found[0] - found[1], wanted) <= 1e-12


def test_in_the_first_task_decay_is_that_of_the_weights() -> None:
    run = build_hand(decay=0.2)
    ctx = run.begin(*draw_examples())
    move_away(ctx)
    found = concatenate_flat(compute_penalty_gradients(run, ctx).values())
    assert compute_relative_error(found, 0.2 * flatten_trainable(ctx)) <= 1e-12


def test_first_order_adds_the_gradient_that_earlier_tasks_left() -> None:
    run, x, y = build_hand(gradient="objective", head_mode="linear"), *draw_examples()
    ctx = run.begin(x, y)
    move_away(ctx)
    left = compute_loss_gradient(ctx, x, y)
    run.end(ctx)
    found = compute_penalty_gradients(run, run.begin(*draw_examples(6, 2)))
    assert (
        compute_relative_error(concatenate_flat(found[name] for name in ctx.trainable), 0.5 * left)
        <= 1e-12
    )


def test_after_two_tasks_the_gradient_is_moved_along_with_the_weights() -> None:
    """q_2 = 1/2 (q_1 + c H_1 Δ) + 1/2 ∇L_2."""
    run = build_hand(gradient="objective", head_mode="linear", curvature="kfac")
    first = begin_last_task(run, THREE[:2])
    q, h = (
        run.method.state["curvature"],
        build_dense_curvature(run.method.state["curvature"], first.trainable),
    )

    def kept_gradient():
        return concatenate_flat(q.tensors[f"gradient/{name}"] for name in first.trainable)

    before, anchor = kept_gradient(), flatten_trainable(first)
    move_away(first)
    own, delta = (
        compute_loss_gradient(first, *draw_examples(6, 2)),
        flatten_trainable(first) - anchor,
    )
    run.end(first)
    wanted = 0.5 * (before + q.json["coupling"] * (h @ delta)) + 0.5 * own
    assert compute_relative_error(kept_gradient(), wanted) <= 1e-12


def test_the_end_of_a_task_notes_the_gradient_that_is_left() -> None:
    run, (x, y) = build_hand(), draw_examples()
    ctx = run.begin(x, y)
    move_away(ctx)
    wanted = compute_loss_gradient(ctx, x, y).norm()
    run.end(ctx)
    assert run.notes["end_gradient_norm"] == pytest.approx(float(wanted), rel=1e-12)
    assert run.notes["curvature_trace_ratio"] == pytest.approx(
        1.0, rel=1e-12
    )  # of trace-restricted factors
    minimised = build_hand(head_mode="linear")
    ctx = minimised.begin(x, y)
    minimise_quadratic(minimised, ctx)
    minimised.end(ctx)
    assert minimised.notes["end_gradient_norm"] < 1e-6


def test_a_small_limit_stores_factors_more_coarsely() -> None:
    kept = []
    for limit in ({"max_factor_bytes": 1024}, {}):
        run = build_hand(network=build_small_network(hidden=(30, 6)), **limit)
        run.end(run.begin(*draw_examples()))
        kept.append(run.method.state["curvature"])
    stored = [sum(t.nbytes for t in section.tensors.values()) for section in kept]
    assert stored[0] < stored[1]
    layers = kept[0].json["layers"].values()
    tiers = {tier for layer in layers for tier in layer["tiers"].values()}
    assert tiers - {"full"} or any(layer["kind"] == "diagonal" for layer in layers)


@pytest.mark.parametrize(
    ("hyper", "classes", "count", "probes"),
    [
        pytest.param({}, 10, 50, None, id="all of ten"),
        pytest.param({}, 11, 50, 8, id="signs of eleven"),
        pytest.param({}, 11, 400, 3, id="fewer for many images"),
        pytest.param({}, 30, 9000, 1, id="at least one"),
        pytest.param({"probes": 3}, 3, 9, None, id="as many as outputs"),
    ],
)
def test_outputs_are_probed_one_by_one_up_to_ten_and_by_signs_beyond(
    hyper, classes, count, probes
) -> None:
    run = build_hand(network=build_small_network(classes=[str(i) for i in range(classes)]), **hyper)
    assert (
        run.method._choose_sign_vector_count(run.begin(*draw_examples(), num_images=count))
        == probes
    )


# Forecasts.


class Straight(Backbone):
    """[B, 2, 3, 3] to its 18 numbers: nothing to learn but a head, and one weight that is never
    asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(18, 18)
        self.width = 18
        self.declare_stage_layers([[("scale",)]])

    def forward(self, x):
        return self.scale(x.flatten(1))


def build_straight_network():
    """Build one linear layer under frozen reading rows, whose Kronecker block is exact, apart from
    its cross terms.
    """
    torch.manual_seed(0)
    own = Network(Straight(), "data", HeadSpec(CLASSES)).double()
    network = LinearisedNetwork(own, slope=0.1, fixed_head=True, frozen=True).eval()
    network.set_reference_rows("shared", torch.randn(3, 18, dtype=torch.float64))
    return network


@pytest.mark.parametrize("prefix", ["head.", "displacement."])
@pytest.mark.parametrize("curvature", ["kfac", "tkfac"])
def test_where_the_curvature_is_exact_the_forecast_is_the_rise_of_the_loss(
    prefix, curvature
) -> None:
    """A layer alone, with the gradient that was left; after two tasks, of their mean loss."""
    run = build_hand(
        network=build_straight_network(),
        head_mode="linear",
        curvature=curvature,
        gradient="objective",
    )
    for seed, (x, y) in enumerate(THREE[:2]):
        ctx = run.begin(x, y)
        stir_parameters(ctx, seed, prefix)
        run.end(ctx)
    ctx = run.begin(*THREE[2])
    assert run.method.forecast_loss_rise(ctx) == 0

    def compute_mean_of_losses():
        return sum(float(compute_mean_loss(run.network, x, y).detach()) for x, y in THREE[:2]) / 2

    before = compute_mean_of_losses()
    stir_parameters(ctx, 4, prefix)
    assert run.method.forecast_loss_rise(ctx) == pytest.approx(
        compute_mean_of_losses() - before, rel=1e-10
    )


@pytest.mark.parametrize("scenario", ["data", "task"])
@pytest.mark.parametrize("curvature", ["diagonal", "kfac", "tkfac"])
def test_the_coupling_is_what_outputs_changed_by_what_the_blocks_say(scenario, curvature) -> None:
    run, (x, y) = build_hand(scenario, curvature=curvature), draw_examples()
    run.network.add_task_classes(1, CLASSES, "default", torch.Generator().manual_seed(0))
    run.network.double()
    ctx = run.begin(x, y)
    task = ctx.task_argument_of_forward
    before = run.network(x, task).detach()
    moving = [n for n in ctx.trainable if scenario == "data" or not n.startswith("heads.")]
    change = draw_random_change(ctx, moving)
    with torch.no_grad():
        for name, d in change.items():
            ctx.trainable[name].add_(d)
        seen = (run.network(x, task) - before).square().sum(1).mean() / 2
    run.end(ctx)
    d = concatenate_flat(change.values())
    h = build_dense_curvature(
        run.method.state["curvature"], {name: ctx.trainable[name] for name in moving}
    )
    found = run.method.state["curvature"].json["coupling"]
    assert found == pytest.approx(float(seen / (d @ h @ d / 2)), rel=1e-9)
    assert run.notes["curvature_coupling"] == found


def test_layers_that_move_together_couple_and_one_that_moves_alone_does_not() -> None:
    run, (x, y) = (
        build_hand(head_mode="linear", curvature="kfac", network=build_straight_network()),
        draw_examples(),
    )
    ctx = run.begin(x, y)
    stir_parameters(ctx)
    run.end(ctx)
    assert run.method.state["curvature"].json["coupling"] == pytest.approx(1, rel=1e-10)
    ctx = run.begin(x, y)
    run.end(ctx)  # nothing moved
    assert run.method.state["curvature"].json["coupling"] == 1
    deep = build_hand(head_mode="linear", curvature="kfac")
    ctx = deep.begin(x, y)
    set_trainable(
        ctx, flatten_trainable(ctx) - 0.01 * deep.gradient(ctx)
    )  # all layers, each to lower the same loss
    deep.end(ctx)
    assert deep.method.state["curvature"].json["coupling"] > 1.5


def test_without_the_gradient_the_forecast_is_the_quadratic_alone() -> None:
    run = build_hand(curvature="kfac", gradient="none")
    ctx = begin_last_task(run, THREE[:2])
    anchor = flatten_trainable(ctx)
    move_away(ctx)
    d, h = (
        flatten_trainable(ctx) - anchor,
        build_dense_curvature(run.method.state["curvature"], ctx.trainable),
    )
    c = run.method.state["curvature"].json["coupling"]
    assert c != 1 and run.method.forecast_loss_rise(ctx) == pytest.approx(
        c * float(d @ h @ d) / 2, rel=1e-12
    )


def test_before_the_second_task_there_is_no_forecast() -> None:
    run = build_hand(keep_task_curvature="diagonal")
    ctx = run.begin(*draw_examples())
    assert (
        run.method.forecast_loss_rise(ctx) is None
        and run.method.forecast_loss_rise_by_task(ctx) == {}
    )


def test_a_forecast_by_task_is_each_tasks_own_diagonal_and_gradient() -> None:
    run = build_hand(curvature="diagonal", keep_task_curvature="diagonal", head_mode="linear")
    alone = []
    for seed, (x, y) in enumerate(THREE[:2]):
        ctx = run.begin(x, y)
        move_away(ctx, seed, 0.1)
        fresh = build_hand(curvature="diagonal", network=run.network, head_mode="linear")
        fresh.end(fresh.begin(x, y))
        alone.append(
            (
                x,
                y,
                build_dense_curvature(fresh.method.state["curvature"], ctx.trainable),
                flatten_trainable(ctx),
            )
        )
        run.end(ctx)
    ctx = run.begin(*THREE[2])
    start, c = flatten_trainable(ctx), run.method.state["curvature"].json["diagonal_coupling"]
    assert run.method.forecast_loss_rise_by_task(ctx) == {1: 0.0, 2: 0.0}
    slopes = []
    for x, y, h, at in alone:
        set_trainable(ctx, at)
        slopes.append(compute_loss_gradient(ctx, x, y) + c * h.diagonal() * (start - at))
    set_trainable(ctx, start)
    move_away(ctx)
    d = flatten_trainable(ctx) - start
    found = run.method.forecast_loss_rise_by_task(ctx)
    for task, (_, _, h, _), left in zip((1, 2), alone, slopes, strict=True):
        assert found[task] == pytest.approx(
            float(c * h.diagonal() @ d.square() / 2 + left @ d), rel=1e-10
        )


def test_the_losses_that_forecasts_speak_of_are_those_of_training() -> None:
    run, (x, y) = build_hand(alpha=4.0), draw_examples()
    found = run.method.compute_example_losses(run.network, x, y, None)
    assert torch.equal(found, compute_squared_errors(run.network(x), y, 4.0))


def test_a_method_that_does_not_forecast_says_so() -> None:
    method = registry.get_method("finetune")(registry.get_method("finetune").Hyper(), MethodState())
    with pytest.raises(NotImplementedError, match="finetune does not forecast"):
        method.compute_example_losses(None, None, None, None)
    assert method.forecast_loss_rise(None) is None and method.get_loss_forecast_limit() is None


# Recipes.


def test_what_a_recipe_leaves_open_is_the_methods_advice() -> None:
    advised, named = (
        resolve_patch({"method": "dlcft", "optimizer": o}).optimizer
        for o in ({}, {"name": "sgd", "lr": 0.5})
    )
    assert (advised.name, advised.weight_decay) == ("adam", 1e-5)
    assert (named.name, named.lr) == ("sgd", 0.5)
    assert resolve_patch({"method": "ewc"}).optimizer.name == "sgd"


def test_frozen_reading_rows_are_refused_where_classes_are_added() -> None:
    method = {"name": "dlcft", "head_mode": "linear"}
    with pytest.raises(InvalidRecipe, match="class scenario") as refused:
        resolve_patch({"method": method}, "class")
    assert refused.value.fields[0]["field"] == "recipe.method.head_mode"
    assert resolve_patch({"method": method}, "data").method["head_mode"] == "linear"


@pytest.mark.parametrize("recipe", [{"head": {"init": "default"}}, {"optimizer": {"olor": {}}}])
def test_what_it_cannot_be_combined_with_is_refused(recipe) -> None:
    with pytest.raises(InvalidRecipe):
        resolve_patch({"method": "dlcft", **recipe})


# Jobs.


@pytest.mark.parametrize(
    # `test_a_run_that_was_killed_ends_with_the_same_bits` learns tasks of the others.
    "scenario",
    [*(pytest.param(other, marks=pytest.mark.campaign) for other in ("data", "task")), "class"],
)
def test_three_tasks_are_learned_from_a_pretrained_base(scenario, tmp_path) -> None:
    bench = make_bench(
        tmp_path, scenario, recipe={"epochs": 12, "augment": "none", "batch_size": 4}
    )
    last = bench.stream(3, method={"name": "dlcft"}, optimizer={"lr": 0.01})
    rows = [last.cell("new", task) for task in (1, 2, 3)]
    assert rows[2]["correct"] / rows[2]["total"] > 0.6
    forecast = last.result["forecast"]
    assert math.isfinite(forecast["predicted"]) and set(forecast["tasks"]) == {"1", "2"}
    rises = [t["after"] - t["before"] for t in forecast["tasks"].values()]
    assert forecast["measured"] == pytest.approx(sum(rises) / 2)


def test_a_pretrained_base_is_frozen_before_the_first_step_and_the_same_in_every_version(
    tmp_path,
) -> None:
    bench = make_bench(tmp_path)
    first, second = bench.learn_tasks(2, method="dlcft")
    assert first.tensors("displacement.1")["displacement.fc1.weight"].any()
    assert not first.warns("random weights")
    for name, digest in first.digests.items():
        if name.startswith("backbone"):
            assert second.digests[name] == digest
    assert first.result["network"] == second.result["network"] and first.result["network"]["base"]
    assert first.digests["displacement.1"] != second.digests["displacement.1"]


def test_a_random_base_is_made_by_the_first_task_and_then_frozen(tmp_path) -> None:
    bench = Bench(tmp_path, "class", {"name": "mlp", "hidden": [6]})
    first = bench.learn_task(1, method="dlcft")
    assert first.warns("random weights") and first.result["network"]["frozen"]
    assert not first.tensors("displacement.1")["displacement.fc1.weight"].any()
    start = build_network(bench.architecture, ImageSpec(6, 1), "class", HeadSpec(), 5).state_dict()
    assert not torch.equal(
        first.tensors("backbone.1")["backbone.fc1.weight"], start["backbone.fc1.weight"]
    )
    second = bench.learn_task(2, first, method="dlcft")
    assert not second.warns("random weights")
    assert second.digests["backbone.1"] == first.digests["backbone.1"]
    assert second.tensors("displacement.1")["displacement.fc1.weight"].any()


@pytest.mark.parametrize(
    ("scenario", "norms"), [("data", "adapt"), ("task", "adapt"), ("class", "fold")]
)
def test_norms_adapt_by_default_where_the_first_task_has_all_that_later_ones_need(
    scenario, norms
) -> None:
    hyper = complete_recipe({"method": "dlcft"}, scenario)["method"]
    assert (hyper["norms"], hyper["curvature"]) == (norms, "diagonal")


@pytest.fixture
def with_norms(tmp_path):
    return Pretrained(
        tmp_path, "data", {"name": "resnet20", "width": 8}, size=8, n=8, recipe={"epochs": 1}
    )


def test_adapted_norms_have_the_mean_and_variance_of_the_first_tasks_images(
    with_norms, monkeypatch
) -> None:
    """One batch holds all images, so the first norm's statistics are those of what reaches it."""
    seen = {}

    def record_norm_statistics(ctx):
        (norm, conv), (batch,) = (
            find_modules_by_ending(ctx.network, ".bn1", ".conv1"),
            ctx.examples(),
        )
        _set_norm_statistics_from_task_images(ctx)
        with torch.no_grad():
            reaching = conv(batch.x).double()
        seen["mean"] = (norm.running_mean.double(), reaching.mean((0, 2, 3)))
        seen["var"] = (norm.running_var.double(), reaching.var((0, 2, 3)))

    def find_modules_by_ending(network, *endings):
        modules = dict(network.named_modules())
        return [
            next(m for name, m in modules.items() if name.endswith(ending)) for ending in endings
        ]

    monkeypatch.setattr(dlcft, "_set_norm_statistics_from_task_images", record_norm_statistics)
    with_norms.learn_task(1, method={"name": "dlcft", "norms": "adapt"})
    for found, wanted in seen.values():
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("epochs", "warned"), [(4, True), (5, False)])
def test_fewer_than_ten_steps_are_warned_of(tmp_path, epochs, warned) -> None:
    bench = Bench(tmp_path, "data", {"name": "mlp", "hidden": [6]}, n=8)
    learned = bench.learn_task(1, method="dlcft", epochs=epochs, batch_size=4)
    assert learned.result["steps"] == 2 * epochs
    assert learned.warns(f"{2 * epochs} optimizer steps") is warned


@pytest.mark.slow
def test_norms_that_adapt_take_the_mean_statistics_of_the_first_task(with_norms) -> None:
    methods = [{"name": "dlcft", "norms": norms} for norms in ("fold", "adapt")]
    fold, adapt = (with_norms.learn_task(1, method=method) for method in methods)
    assert fold.digests["backbone.1"] != adapt.digests["backbone.1"]
    assert fold.result["network"]["base"] != adapt.result["network"]["base"]
    second = with_norms.learn_task(2, adapt, method=methods[1])
    assert second.digests["backbone.1"] == adapt.digests["backbone.1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "method"),
    [
        ("data", {"norms": "adapt"}),
        pytest.param("data", {"head_mode": "linear"}, marks=pytest.mark.campaign),
        ("task", {"head_mode": "linear"}),
        ("class", {"keep_task_curvature": "diagonal", "gradient": "objective"}),
    ],
)
def test_a_run_that_was_killed_ends_with_the_same_bits(scenario, method, tmp_path) -> None:
    architecture = (
        {"name": "resnet20", "width": 8} if "norms" in method else {"name": "mlp", "hidden": [6]}
    )
    bench = Pretrained(tmp_path, scenario, architecture, size=8, n=9, recipe={"epochs": 2})
    wanted = {"name": "dlcft", **method}
    first = bench.learn_task(1, method=wanted)
    assert bench.resumed(1, None, 2, 4, method=wanted).digests == first.digests
    second = bench.learn_task(2, first, method=wanted)
    assert bench.resumed(2, first, 2, 4, method=wanted).digests == second.digests


def test_a_run_killed_while_it_measured_curvature_ends_with_the_same_bits(
    tmp_path, monkeypatch
) -> None:
    bench = make_bench(tmp_path, n=80)  # three passes of 32
    first, undisturbed = bench.learn_tasks(2, method="dlcft")
    add, calls, consolidate, ending = CurvatureEstimator.add_examples, [], TrainingLoop.end_task, []

    def add_batch_or_die(self, x, cotangents=None):
        calls.append(len(x))
        if ending and len(calls) > 4:
            raise Killed
        add(self, x, cotangents)

    def mark_end_and_consolidate(self):
        ending.append(True)
        calls.clear()
        consolidate(self)

    with monkeypatch.context() as patch:
        patch.setattr(CurvatureEstimator, "add_examples", add_batch_or_die)
        patch.setattr(TrainingLoop, "end_task", mark_end_and_consolidate)
        again = bench.killed(bench.spec(2, first, method="dlcft"), Script([5]))
    assert ending and again["snapshot"]
    assert bench.learn(again).digests == undisturbed.digests


def test_only_states_within_the_budget_are_deployed(tmp_path) -> None:
    bench = make_bench(tmp_path, "class", n=40)
    settings = {"epochs": 6, "validation": 0.2, "optimizer": {"lr": 0.02}}
    first = bench.learn_task(1, method={"name": "dlcft", "gradient": "none"}, **settings)
    found = {}
    for budget in (None, 0.5):
        method = {"name": "dlcft", "max_predicted_loss_rise": budget, "gradient": "none"}
        found[budget] = bench.learn_task(2, first, method=method, **settings).result["forecast"][
            "predicted"
        ]
    assert found[None] > 0.5 >= found[0.5]


def test_a_budget_of_nothing_deploys_the_state_before_the_first_step(tmp_path) -> None:
    bench = make_bench(tmp_path, "class", n=40)
    first = bench.learn_task(1, method={"name": "dlcft", "gradient": "none"})
    method = {"name": "dlcft", "max_predicted_loss_rise": 0.0, "gradient": "none"}
    second = bench.learn_task(2, first, method=method, validation=0.2)
    assert second.digests["displacement.1"] == first.digests["displacement.1"]
    assert second.result["forecast"]["predicted"] == 0 == second.result["forecast"]["measured"]


def test_a_budget_without_a_validation_part_is_warned_of(tmp_path) -> None:
    method = {"name": "dlcft", "max_predicted_loss_rise": 1.0}
    assert make_bench(tmp_path).learn_task(1, method=method).warns("validation 0")


def test_a_masked_loss_is_warned_of_where_it_would_have_hidden_classes(tmp_path) -> None:
    learned = make_bench(tmp_path, "class").learn_tasks(2, method="dlcft", train_ce="masked")
    assert [run.warns("train_ce") for run in learned] == [False, True]


def test_a_forecast_that_is_no_number_fails_the_job_before_it_publishes(
    tmp_path, monkeypatch
) -> None:
    bench = make_bench(tmp_path)
    first = bench.learn_task(1, method="dlcft")
    monkeypatch.setattr(DlcftMethod, "forecast_loss_rise", lambda self, ctx: math.inf)
    with pytest.raises(NonFiniteTrainingError, match="lower lr"):
        bench.learn_task(2, first, method="dlcft")


def test_training_reports_the_forecast_as_it_goes(tmp_path) -> None:
    first, second = make_bench(tmp_path).learn_tasks(2, method="dlcft")
    told = second.metric("predicted_loss_rise")
    assert not first.metric("predicted_loss_rise")
    assert len(told) > 2 and told[-1] == second.result["forecast"]["predicted"]
    assert all(math.isfinite(value) for value in told)


def test_another_slope_than_the_models_is_refused(tmp_path) -> None:
    bench = make_bench(tmp_path)
    first = bench.learn_task(1, method={"name": "dlcft", "slope": 0.1})
    with pytest.raises(DataError, match=r"slope 0\.1 and a bilinear head"):
        bench.learn_task(2, first, method={"name": "dlcft", "slope": 0.2})


def test_deleted_data_leaves_the_buffer_and_the_curvature_stays() -> None:
    run = build_hand("class", buffer=6)
    run.end(run.begin(*draw_examples()))
    before = dict(run.method.state["curvature"].tensors)
    run.method.erase_task_examples({1})
    assert not len(run.method.state["buffer"].tensors["labels"])
    assert run.method.state["curvature"].tensors.keys() == before.keys()


def test_the_heads_block_is_one_gram_for_all_rows() -> None:
    run = build_hand("class")
    run.end(run.begin(*draw_examples()))
    block = CurvatureMemory(run.method.state["curvature"]).curvature.blocks["head"]
    z = append_column_of_ones(run.network.compute_value_and_derivative(draw_examples()[0])[0])
    assert (
        isinstance(block, HeadGramCurvatureBlock)
        and compute_relative_error(block.a.to_dense(), (z.T @ z / 9).detach()) <= 1e-12
    )


def test_its_description_and_registration_agree() -> None:
    assert (
        registry.get_method("dlcft") is DlcftMethod
        and DlcftMethod.family == LinearisedNetwork.family
    )
    assert build_linearised_network("mlp").describe_for_manifest()["family"] == DlcftMethod.family
