"""The diagonal Fisher information of a classifier, per example, never from batch-mean gradients.

exact:  F_i = E_x Σ_c p_c (∂ log p_c / ∂θ_i)²        sample: c drawn from p
Which of them, and why not the gradient of a batch's mean: van de Ven 2025, arXiv 2502.11756.
The softmax runs over the active classes; the mean is over examples. Layers with a closed form give their
per-sample gradients from (input activation, output gradient); `vmap(grad)` covers every other network and
is the oracle of the closed forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learn.networks.heads import Head

EXACT_CLASSES = 20  # up to this many active classes the sum over classes is exact
CHUNK = 32  # examples per pass; per-sample gradients of a chunk are held at once

Forward = Callable[[Tensor], Tensor]


def diagonal_fisher(
    network: nn.Module,
    forward: Forward,
    names: Iterable[str],
    inputs: Iterable[Tensor],
    *,
    exact: bool,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Diagonal Fisher of the parameters `names`, each of its parameter's shape, float32.

    network: in eval mode. forward: x [B, C, S, S] → logits [B, K] of the active classes. inputs: batches of
    at most CHUNK examples. Parameters that the forward does not use get zeros.
    """
    parameters = dict(network.named_parameters())
    chosen = {name: parameters[name] for name in names}
    total = {name: torch.zeros_like(p, dtype=torch.float32) for name, p in chosen.items()}
    layers = _closed_form_layers(network, chosen)
    n = 0
    for x in inputs:
        n += x.shape[0]
        done = layers is not None and _add_layers(forward, layers, x, total, exact, generator)
        if not done:
            layers = None  # used twice, or not as expected: per-sample gradients for the rest as well
            _add_vmap(network, forward, chosen, x, total, exact, generator)
    for value in total.values():
        value.div_(max(n, 1))
    return total


@dataclass
class _Layer:
    module: nn.Module
    weight: str | None
    bias: str | None


def _closed_form_layers(network: nn.Module, chosen: dict[str, nn.Parameter]) -> list[_Layer] | None:
    """Layers that own the chosen parameters, or None when one of them has no closed form."""
    owner: dict[str, nn.Module] = {}
    for prefix, module in network.named_modules():
        for key, _ in module.named_parameters(recurse=False):
            owner[f"{prefix}.{key}" if prefix else key] = module
    layers: dict[nn.Module, _Layer] = {}
    for name in chosen:
        module, key = owner[name], name.rpartition(".")[2]
        simple = isinstance(module, nn.Linear | Head | nn.BatchNorm2d) or (
            isinstance(module, nn.Conv2d)
            and module.groups == 1
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )
        if not simple or key not in ("weight", "bias"):
            return None
        layer = layers.setdefault(module, _Layer(module, None, None))
        if key == "weight":
            layer.weight = name
        else:
            layer.bias = name
    return list(layers.values())


def _targets(logits: Tensor, exact: bool, generator: torch.Generator) -> list[Tensor]:
    """Per backward pass a vector [B, K]: row n is √p_c e_c (exact, one pass per class) or e_c of a draw."""
    p = logits.detach().float().softmax(1)
    if exact:
        eye = torch.eye(p.shape[1], device=p.device)
        return [p[:, c : c + 1].sqrt() * eye[c] for c in range(p.shape[1])]
    drawn = torch.multinomial(p.cpu(), 1, generator=generator).squeeze(1)
    return [functional.one_hot(drawn, p.shape[1]).to(p)]


def _add_layers(
    forward: Forward,
    layers: list[_Layer],
    x: Tensor,
    total: dict[str, Tensor],
    exact: bool,
    generator: torch.Generator,
) -> bool:
    """Add the squares of one chunk. False (nothing added) when a layer ran twice or on unexpected shapes."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    twice: list[nn.Module] = []

    def keep(module: nn.Module, args: Any, output: Tensor) -> None:
        if module in seen:
            twice.append(module)
        seen[module] = (args[0].detach(), output)

    hooks = [layer.module.register_forward_hook(keep) for layer in layers]
    try:
        with torch.enable_grad():
            logits = forward(x)
    finally:
        for hook in hooks:
            hook.remove()
    used = [layer for layer in layers if layer.module in seen]
    if twice or any(not _shapes_fit(layer.module, *seen[layer.module]) for layer in used):
        return False
    outputs = [seen[layer.module][1] for layer in used]
    if not outputs or logits.shape[1] == 0:
        return True
    log_p = logits.float().log_softmax(1)
    prepared = [_prepare(layer, seen[layer.module][0]) for layer in used]
    passes = _targets(logits, exact, generator)
    for i, target in enumerate(passes):
        grads = torch.autograd.grad(
            log_p, outputs, target, retain_graph=i + 1 < len(passes), allow_unused=True
        )
        for layer, a, delta in zip(used, prepared, grads, strict=True):
            if delta is not None:
                _add_square(layer, a, delta.float(), total)
    return True


def _shapes_fit(module: nn.Module, a: Tensor, z: Tensor) -> bool:
    wanted = 2 if isinstance(module, nn.Linear | Head) else 4
    return a.dim() == wanted and z.requires_grad


def _prepare(layer: _Layer, a: Tensor) -> Tensor:
    """What the squares of a layer need of its input, the same for every class."""
    module = layer.module
    a = a.float()
    if isinstance(module, nn.Conv2d):
        assert not isinstance(module.padding, str)
        return functional.unfold(
            a.contiguous(),
            module.kernel_size,
            dilation=module.dilation,
            padding=module.padding,
            stride=module.stride,
        ).transpose(1, 2)  # [B, L, in·k·k]
    if isinstance(module, nn.BatchNorm2d):
        assert module.running_mean is not None and module.running_var is not None
        mean, var = module.running_mean, module.running_var
        return (a - mean[:, None, None]) * torch.rsqrt(var + module.eps)[:, None, None]
    return a.square()


def _add_square(layer: _Layer, a: Tensor, delta: Tensor, total: dict[str, Tensor]) -> None:
    """Σ over examples of squared per-sample gradients, from prepared input and output gradient."""
    module = layer.module
    if isinstance(module, nn.Conv2d):
        flat = delta.flatten(2)  # [B, out, L]
        if layer.weight is not None:
            grad = torch.bmm(flat, a)
            total[layer.weight] += grad.square_().sum(0).view_as(total[layer.weight])
        if layer.bias is not None:
            total[layer.bias] += flat.sum(2).square_().sum(0)
    elif isinstance(module, nn.BatchNorm2d):
        if layer.weight is not None:
            total[layer.weight] += (delta * a).sum((2, 3)).square_().sum(0)
        if layer.bias is not None:
            total[layer.bias] += delta.sum((2, 3)).square_().sum(0)
    else:
        square = delta.square()  # one output row per example: (δ aᵀ)² = δ² (a²)ᵀ
        if layer.weight is not None:
            total[layer.weight] += square.T @ a
        if layer.bias is not None:
            total[layer.bias] += square.sum(0)


def _add_vmap(
    network: nn.Module,
    forward: Forward,
    chosen: dict[str, nn.Parameter],
    x: Tensor,
    total: dict[str, Tensor],
    exact: bool,
    generator: torch.Generator,
) -> None:
    """The same by one gradient per example and class, through torch.func."""
    with torch.no_grad():
        passes = _targets(forward(x), exact, generator)
    call = _Call(network, forward)
    values = {f"network.{name}": p.detach() for name, p in chosen.items()}

    def log_p(params: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(call, params, (one[None],), tie_weights=False)
        return (logits.float().log_softmax(1)[0] * target).sum()

    per_sample = torch.func.vmap(torch.func.grad(log_p), in_dims=(None, 0, 0))
    for target in passes:
        for name, grad in per_sample(values, x, target).items():
            total[name.removeprefix("network.")] += grad.float().square().sum(0)


class _Call(nn.Module):
    """A forward function as a module, so that functional_call can put parameters under it."""

    def __init__(self, network: nn.Module, function: Forward) -> None:
        super().__init__()
        self.network = network
        self._function = (function,)  # in a tuple: a module here would register its parameters twice

    def forward(self, x: Tensor) -> Tensor:
        return self._function[0](x)
