"""First weights as a pure function of a seed: every draw comes from the given generator.

Constructors of torch and torchvision draw from the global generator. So backbones are built on the
meta device, where nothing is drawn, and filled here module by module in definition order. A module
type without a rule is an error, never uninitialised memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Rule = Callable[[str, nn.Module, torch.Generator], bool]


def initialise_weights(root: nn.Module, rule: Rule, generator: torch.Generator) -> None:
    """Initialise every parameter and buffer of a module and its submodules.

    `rule(name, module, generator)` fills a module's own tensors and returns false for a module that
    it does not support. Norm layers are handled here (scale 1, shift 0, running statistics 0 and
    1). Raises TypeError for a module with tensors of its own and no rule.
    """
    with torch.no_grad():
        # In definition order, since the order of draws determines the weights.
        for name, module in root.named_modules():
            owns = next(module.parameters(recurse=False), None) is not None
            # Buffers too: on memory that `to_empty` left uninitialised, running statistics would be
            # garbage.
            owns = owns or next(module.buffers(recurse=False), None) is not None
            if owns and not _reset_norm_layer(module) and not rule(name, module, generator):
                raise TypeError(
                    f"no initialisation is defined for {name} ({type(module).__name__})"
                )


def _reset_norm_layer(module: nn.Module) -> bool:
    """Reset a norm layer's parameters and statistics; return false for other modules."""
    if isinstance(module, nn.BatchNorm2d):
        module.reset_parameters()
        return True
    if isinstance(module, nn.LayerNorm):
        module.reset_parameters()
        return True
    return False


def initialise_by_torch_rule(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise weight and bias of Linear and Conv2d by torch's default rule.

    Both are U(-1/sqrt(fan_in), 1/sqrt(fan_in)). Returns false for other modules.
    """
    if not isinstance(module, nn.Linear | nn.Conv2d):
        return False
    bound = 1 / math.sqrt(count_inputs_per_weight_output(module.weight))
    module.weight.uniform_(-bound, bound, generator=generator)
    if module.bias is not None:
        module.bias.uniform_(-bound, bound, generator=generator)
    return True


def initialise_by_he_rule(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise convolutions by He et al. 2015 (normal, fan out), as in ResNets.

    Returns false for other modules.
    """
    if not isinstance(module, nn.Conv2d):
        return False
    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
    if module.bias is not None:
        module.bias.zero_()
    return True


def initialise_by_lecun_rule(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise Linear and Conv2d by LeCun 1998: U(-sqrt(3/fan_in), sqrt(3/fan_in)), without bias.

    Outputs have the variance of inputs. torch's rule shrinks activations by sqrt(3) per layer, and
    under a zero head nothing is learned for epochs. He's gain of sqrt(2) learns soonest, but
    diverges at the default learning rate when classes change. Returns false for other modules.
    """
    if not isinstance(module, nn.Linear | nn.Conv2d):
        return False
    bound = math.sqrt(3 / count_inputs_per_weight_output(module.weight))
    module.weight.uniform_(-bound, bound, generator=generator)
    if module.bias is not None:
        module.bias.zero_()
    return True


def count_inputs_per_weight_output(weight: Tensor) -> int:
    """Return the number of inputs per output of a Linear or Conv2d weight (fan-in)."""
    return weight[0].numel()
