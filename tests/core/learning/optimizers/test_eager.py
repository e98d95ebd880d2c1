"""A step without torch's compiler is torch's own step, to the bit.

That training does not import the compiler is asserted in `kit/fork_server.py`.
"""

import pytest
import torch

from core.learning.optimizers import eager

MAKE = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=1e-3, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=1e-3, fused=True),
}


@pytest.mark.parametrize("name", MAKE)
def test_steps_are_torchs_own_to_the_bit(name: str) -> None:
    ends = []
    for own in (True, False):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 101))
        optimizer = MAKE[name]([weight])
        for number in range(5):
            weight.grad = torch.sin(weight.detach() * (number + 1))
            if own:
                eager.step_optimizer_without_hooks(optimizer)
            else:
                optimizer.step()
        ends.append(weight.detach().clone())
    assert torch.equal(*ends)
