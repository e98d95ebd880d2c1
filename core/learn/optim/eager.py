"""Optimizers without torch's compiler, which nothing here uses: its import costs a second and 70 MB of every process.

torch marks methods of its optimizers as not to be compiled, and imports the compiler at their first call to say so.
Both ways around it are open: where torch changes them, the compiler is imported as before and nothing else differs.
"""

import inspect

import torch
from torch.optim import Optimizer

_MARK = "__dynamo_disable"
"""What `torch._compile._disable_dynamo` keeps the method under that it calls."""


def leave_compiler_out() -> None:
    """Let every method of `torch.optim.Optimizer` that is not to be compiled be called as it is."""
    for method in vars(Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, _MARK):
            setattr(plain, _MARK, plain)


def step(optimizer: Optimizer) -> None:
    """One step of an optimizer that is not to be differentiated through; hooks that are registered with it stay out."""
    plain = inspect.unwrap(type(optimizer).step)
    with torch.no_grad():
        plain(optimizer)
