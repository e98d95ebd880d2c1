"""Optimizer steps without torch's compiler, whose import costs each process a second and 70 MB.

torch marks methods of its optimizers as not to be compiled, and imports the compiler at their first
call to do so. The two functions here avoid that. Where a release of torch changes these internals,
the compiler is imported as usual and results stay the same.
"""

import inspect

import torch
from torch.optim import Optimizer

_MARK = "__dynamo_disable"
"""Attribute in which `torch._compile._disable_dynamo` stores the method that it calls."""


def remove_optimizer_compiler_wrappers() -> None:
    """Make torch's optimizer methods run directly, without the wrappers of its compiler."""
    for method in vars(Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, _MARK):
            setattr(plain, _MARK, plain)


def step_optimizer_without_hooks(optimizer: Optimizer) -> None:
    """Take one step of a torch optimizer, outside autograd and without calling registered hooks."""
    # Unwrapped: torch's wrappers profile the step and look for hooks, of which there are none here.
    plain = inspect.unwrap(type(optimizer).step)
    with torch.no_grad():
        plain(optimizer)
