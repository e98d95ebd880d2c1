"""The only training loop: the slots of a method in their order, one backward and one optimizer step per batch.

Everything that decides a run is a pure function of (recipe, task, epoch) or part of a snapshot, so a run that
is interrupted at any step and resumed ends, on CPU and at an equal thread count, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from core.learn.anytime import Accuracy
from core.learn.augment import epoch_seed, epoch_table
from core.learn.context import Batch, Context
from core.learn.dataset import Dataset, Feed, split_validation
from core.learn.method import Method
from core.learn.optim.build import NamedOptimizer
from core.learn.optim.olor import anchored
from core.learn.sampler import count, shuffled, stratified
from core.learn.validation import Best, Validation

REPORTS_PER_EPOCH = 20
CONSOLIDATION_BATCH = 32
VALIDATION_EPOCH = -1  # the table that splits off the validation part
CONSOLIDATION_EPOCH = -2  # the table that orders the training part for the end of the task

Emit = Callable[[dict[str, Any]], None]


class NonFinite(ArithmeticError):
    """The loss is no longer a number; nothing of this run can be kept."""


class Stopped(Exception):
    """The run was asked to stop, after a snapshot."""


class Control(Protocol):
    """What the loop asks between steps: `pending` is cheap; `take` returns "s", "a", "p" or None and clears it."""

    pending: bool

    def take(self) -> str | None: ...


@dataclass
class Position:
    """Where a run is. `batch`: batches done in this epoch; `step`: optimizer steps done in this task."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    images: int = 0


@dataclass
class Snapshot:
    """All that a run needs to go on: flat tensors and JSON values."""

    tensors: dict[str, Tensor]
    json: dict[str, Any]


class Loop:
    """Trains one task. `train` may be called once; `resume` before it continues from a snapshot.

    Args:
        save: writes a snapshot; save_best: writes the best validated state, for whoever cannot wait.
        test: measures the network as it is on held-out parts.
    """

    def __init__(
        self,
        ctx: Context,
        method: Method,
        data: Dataset,
        emit: Emit,
        control: Control,
        save: Callable[[Snapshot], None],
        save_best: Callable[[Best], None],
        test: Callable[[], Accuracy],
    ) -> None:
        self.ctx = ctx
        self.method = method
        self.position = Position()
        self._emit = emit
        self._control = control
        self._save = save
        self._save_best = save_best
        known = ctx.network.classes_of(ctx.head_task)
        ctx.examples = self._examples
        self._feed = Feed(data, known, ctx.inputs, ctx.augment, ctx.head_task)
        n = len(data)
        recipe = ctx.recipe
        self._rows = torch.arange(n)
        held = torch.zeros(0, dtype=torch.int64)
        if recipe.validation > 0:
            order = epoch_table(recipe.seed, ctx.task, VALIDATION_EPOCH, n)[:, 0]
            self._rows, held = split_validation(self._feed.labels, recipe.validation, order)
        ctx.count = self._rows.numel()
        self._per_epoch = count(recipe.sampler, self._rows.numel(), recipe.batch_size)
        self._stages = method.stages(ctx)
        self._epochs = [stage.epochs or recipe.epochs for stage in self._stages]
        self.epochs = sum(self._epochs)
        self.total_steps = self._per_epoch * self.epochs
        images, wanted = data.images.index_select(0, held), self._feed.labels[held]
        self.validation = Validation(ctx, method, images, wanted, self.total_steps, emit, test)
        self._carried: dict[str, Tensor] = {}
        self._optimizer: NamedOptimizer | None = None
        self._pending_optimizer: dict[str, Tensor] | None = None
        self._loss = torch.zeros((), device=ctx.device)
        self._losses = 0
        self._select(recipe.depth)

    @property
    def epoch(self) -> int:
        """The epoch under way: from 1, counted on from stage to stage, as progress and snapshots are told."""
        return sum(self._epochs[: self.position.stage]) + self.position.epoch + 1

    # Before and after.

    def resume(self, tensors: Mapping[str, Tensor], json: Mapping[str, Any]) -> None:
        """Continue from a snapshot's content. The network must have the shape that it had then.

        What the method calls settled must be in its state.
        """
        self.position = Position(**json["position"])
        groups: dict[str, dict[str, Tensor]] = {
            "net": {},
            "optimizer": {},
            "state": {},
            "best": {},
            "rng": {},
        }
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor
        self.ctx.network.take_shape(set(groups["net"]))
        self.ctx.network.load_state_dict(groups["net"], strict=True)
        self._pending_optimizer = groups["optimizer"]
        _load_state(self.method, groups["state"], json["state"], self.ctx.device)
        self.validation.resume(json["validation"], groups["best"])
        torch.set_rng_state(groups["rng"]["cpu"])
        if "cuda" in groups["rng"]:
            torch.cuda.set_rng_state(groups["rng"]["cuda"], self.ctx.device)
        self._loss.copy_(torch.tensor(json["loss"]["sum"], dtype=torch.float32))
        self._losses = json["loss"]["steps"]

    def carry(self, optimizer_state: Mapping[str, Tensor]) -> None:
        """Optimizer state of the previous task, for recipes with `carry_state`."""
        self._carried = dict(optimizer_state)

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's state at the end, for `carry_state`."""
        return dict(self._optimizer.state()) if self._optimizer else {}

    def train(self) -> None:
        """All stages. Raises NonFinite, or Stopped after the snapshot that was asked for."""
        position, validation = self.position, self.validation
        if position.step:
            validation.announce()  # whoever asks may not know: the run was resumed
        else:
            validation.begin()
        for stage in range(position.stage, len(self._epochs)):
            if stage != position.stage:
                position.stage, position.epoch, position.batch = stage, 0, 0
            self.ctx.stage = self._stages[stage].name
            self._select(self._stages[stage].depth or self.ctx.recipe.depth)
            if position.epoch == 0 and position.batch == 0:
                self._modes(False)
                self.method.begin_stage(self.ctx)
            self._optimizer = self._make_optimizer(stage)
            while position.epoch < self._epochs[stage]:
                self._epoch(stage)
                position.epoch += 1
                position.batch = 0
        self._select(self.ctx.recipe.depth)
        if validation.total:
            validation.deploy()
            for name, value in (("step", validation.best.step), ("epoch", validation.best.epoch + 1)):
                self._emit(_metric(f"deployed_{name}", position.step, value))

    def consolidate(self) -> None:
        """The method's end of the task, on the final weights. Raises NonFinite when they are not numbers."""
        for name, tensor in self.ctx.network.state_dict().items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise NonFinite(
                    f"{name} is no longer finite after the last step: lower lr or set optimizer.clip"
                )
        self._modes(False)
        self.method.end_task(self.ctx, self._examples())
        self.ctx.scratch.clear()

    def _examples(self) -> Iterator[Batch]:
        """The training part, shuffled: archives list class by class, and a method may take the first rows."""
        table = epoch_table(
            self.ctx.recipe.seed, self.ctx.task, CONSOLIDATION_EPOCH, self._feed.labels.numel()
        )
        rows = self._rows[table[self._rows, 0].argsort(stable=True)]
        return self._feed.in_order(rows, CONSOLIDATION_BATCH)

    # One epoch.

    def _epoch(self, stage: int) -> None:
        ctx, method, position, optimizer = self.ctx, self.method, self.position, self._optimizer
        assert optimizer is not None
        recipe = ctx.recipe
        number = self.epoch - 1
        ctx.epoch, ctx.step = number, position.step
        table = epoch_table(recipe.seed, ctx.task, number, self._feed.labels.numel(), ctx.augment.columns)
        order = self._batches(number, table[:, 0])
        ctx.batches = len(order)
        augmenting = table[:, 1:] if ctx.augment.active else None
        start = self._per_epoch * sum(self._epochs[:stage])
        report = max(1, math.ceil(len(order) / REPORTS_PER_EPOCH))
        parameters = list(ctx.trainable.values())
        mixed = ctx.autocast
        on_cuda = ctx.device.type == "cuda"
        self._modes(True)
        while position.batch < len(order):
            ctx.batch = position.batch
            index = order[position.batch]
            optimizer.set_rate(position.step - start)
            batch = self._feed.batch(index, None if augmenting is None else augmenting[index])
            for parameter in parameters:
                parameter.grad = None
            if on_cuda:
                with mixed():
                    terms = method.loss_terms(ctx, batch)
            else:
                terms = method.loss_terms(ctx, batch)
            loss = _sum(terms)
            loss.backward()  # type: ignore[no-untyped-call]
            method.penalty_grads(ctx)
            due = (position.batch + 1) % report == 0 or position.batch + 1 == len(order)
            if due and not ctx.first and (predicted := method.forecast(ctx)) is not None:
                known = predicted if math.isfinite(predicted) else None
                self._emit(_metric("predicted_loss_rise", position.step, known))
            method.project(ctx)
            optimizer.step()
            with torch.no_grad():
                method.after_step(ctx, batch)
                self._loss += loss.detach()
            ctx.scratch.clear()
            self._losses += 1
            position.batch += 1
            position.step += 1
            position.images += index.numel()
            ctx.step = position.step
            if due:
                self._report()
            self.validation.after_step(position.step, number)
            if self._control.pending:
                self._obey()
        self.validation.after_epoch(position.step, number)

    def _batches(self, epoch: int, order: Tensor) -> list[Tensor]:
        recipe = self.ctx.recipe
        if recipe.sampler == "shuffled":
            return shuffled(order, self._rows, recipe.batch_size)
        seed = epoch_seed(recipe.seed, self.ctx.task)
        return stratified(seed, epoch, self._rows, self._feed.labels, recipe.batch_size)

    def _report(self) -> None:
        loss = float(self._loss) / max(1, self._losses)
        if not math.isfinite(loss):
            raise NonFinite(
                f"the loss is {loss} at step {self.position.step}: lower lr (now "
                f"{self.ctx.recipe.optimizer.lr:g}) or the method's strength, or set optimizer.clip"
            )
        self._loss.zero_()
        self._losses = 0
        self._emit(
            {
                "event": "progress",
                "phase": "train",
                "epoch": self.epoch,
                "epochs": self.epochs,
                "step": self.position.step,
                "total_steps": self.total_steps,
                "images": self.position.images,
                "loss": loss,
            }
        )

    # Snapshots.

    def snapshot(self) -> Snapshot:
        """The state between two steps. Tensors are those of the run, not copies: write them at once."""
        tensors: dict[str, Tensor] = {"rng/cpu": torch.get_rng_state()}
        if self.ctx.device.type == "cuda":
            tensors["rng/cuda"] = torch.cuda.get_rng_state(self.ctx.device)
        tensors |= {f"net/{name}": t for name, t in self.ctx.network.state_dict().items()}
        tensors |= {f"best/{name}": t for name, t in self.validation.best.tensors.items()}
        if self._optimizer is not None:
            tensors |= {f"optimizer/{key}": t for key, t in self._optimizer.state()}
        settled = self.method.settled  # is with the parent already, and may be larger than all else
        for kind, named in self.method.state.parts(without=settled).items():
            tensors |= {f"state/{kind}/{name}": t for name, t in named.items()}
        json = {
            "position": dict(vars(self.position)),
            "state": self.method.state.json(without=settled),
            "validation": self.validation.json(),
            "loss": {"sum": float(self._loss), "steps": self._losses},
        }
        return Snapshot(tensors, json)

    def _obey(self) -> None:
        asked = self._control.take()
        if asked == "a" and self.validation.anytime:
            self._save_best(self.validation.best)
        if asked not in ("s", "p"):
            return
        if not math.isfinite(float(self._loss)):
            self._report()  # raises: a snapshot of lost weights would only be found later
        self._save(self.snapshot())
        if asked == "p":
            raise Stopped

    # Set-up.

    def _select(self, depth: int) -> None:
        """Only the set S requires gradients; the context names it in the network's order."""
        ctx = self.ctx
        names = self.method.trainable(ctx.network, depth)
        ctx.trainable = {}
        for name, parameter in ctx.network.named_parameters():
            parameter.requires_grad_(name in names)
            parameter.grad = None
            if name in names:
                ctx.trainable[name] = parameter

    def _modes(self, training: bool) -> None:
        """Frozen modules in eval; after the first update all BatchNorm in eval."""
        tiny = self._rows.numel() == 1 or self.ctx.recipe.batch_size == 1
        _set_modes(self.ctx.network, training, fixed_norm=not self.ctx.first or tiny)

    def _make_optimizer(self, stage: int) -> NamedOptimizer:
        steps = self._per_epoch * self._epochs[stage]
        recipe = self.ctx.recipe.optimizer
        pulls = anchored(self.ctx, recipe.olor) if recipe.olor else []
        optimizer = NamedOptimizer(recipe, self.ctx.trainable, steps, pulls, self.ctx.warn)
        if self._pending_optimizer is not None:
            optimizer.load(self._pending_optimizer)
            self._pending_optimizer = None
        elif stage == len(self._stages) - 1 and self._carried:  # which were those of a last stage
            optimizer.load(self._carried)
        return optimizer


def _sum(terms: Mapping[str, Tensor]) -> Tensor:
    values = iter(terms.values())
    total = next(values)
    for value in values:
        total = total + value
    return total


def _metric(name: str, step: int, value: float | None) -> dict[str, Any]:
    return {"event": "metric", "name": name, "step": step, "value": value}


def _set_modes(module: nn.Module, on: bool, *, fixed_norm: bool) -> None:
    parameters = list(module.parameters())
    if parameters:
        on = on and any(p.requires_grad for p in parameters)
    module.training = on and not (fixed_norm and isinstance(module, nn.modules.batchnorm._BatchNorm))
    for child in module.children():
        _set_modes(child, on, fixed_norm=fixed_norm)


def _load_state(
    method: Method, tensors: Mapping[str, Tensor], json: Mapping[str, Any], device: torch.device
) -> None:
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        parts.setdefault(kind, {})[name] = tensor
    method.state.load(parts, json, device, keep=method.settled)
