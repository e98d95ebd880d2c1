"""Number formats and kernels of a job, as its recipe requests for its device.

On a CPU nothing is set: with a fixed number of threads its kernels give the same bits each time. On
CUDA, TF32 is off for the whole job, since a recipe's "float32" means all 23 bits, backward passes
and consolidation included; training in bfloat16 is the fast way. With `deterministic`, kernels that
add in no fixed order are avoided where there are others. A job that is resumed on the same kind of
GPU then ends with the same bits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.learning.precision import (
    Format,
    choose_number_format,
    forbid_tf32,
    has_cpu_bfloat16_instructions,
)
from core.learning.recipe import Recipe

_NO_FIXED_ORDER = re.compile(
    r"(?P<name>.+?) (?:does not have a deterministic implementation|defaults to a "
    r"non-deterministic algorithm)(?s:.*)"
)
_CUBLAS = "this operation is not deterministic because it uses CuBLAS"
CUBLAS_NAME = "cuBLAS"


class NumericsSettings:
    """A job's number format for training and its choice between deterministic and fast kernels.

    Attributes:
        format: of forward passes in training; evaluation is in float32.
        deterministic: as in the recipe.
        operations: names of operations that ran without a deterministic kernel, in the order of
            their first run.
    """

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self.format: Format = choose_number_format(recipe.precision, device)
        self.deterministic = recipe.deterministic
        self.operations: list[str] = []
        self._device = device

    def iterate_numerics_warnings(self) -> Iterator[str]:
        """Yield warnings for the user about the job's numerics, before it begins."""
        if (
            self.format == "bfloat16"
            and self._device.type == "cpu"
            and not has_cpu_bfloat16_instructions()
        ):
            yield (
                "this CPU has no instructions for bfloat16 (avx512_bf16 or AMX), so precision "
                '"bfloat16" is slower here than "float32": send "auto" or "float32", or run the '
                "job on a machine that "
                "has them"
            )

    def iterate_numerics_log_lines(self) -> Iterator[str]:
        """Yield log lines about the job's numerics where they differ from the default on a CPU."""
        if self.format == "bfloat16":
            yield (
                "Forward passes of training are in bfloat16; weights, sums and all evaluation "
                "are in float32."
            )
        if not self.deterministic and self._device.type == "cuda":
            yield (
                "deterministic is false: kernels are chosen for speed, and the same job may end "
                "with other bits, also when it is resumed."
            )
        elif not self.deterministic:
            yield (
                "deterministic is false, which changes nothing on a CPU: its kernels give the "
                "same bits anyway."
            )

    @contextmanager
    def use_numerics_flags(self) -> Iterator[None]:
        """Context manager that sets torch's numerics flags for the job, and restores them
        afterwards.
        """
        if self._device.type != "cuda":
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(forbid_tf32())
            stack.enter_context(_use_cudnn_flags(self.deterministic))
            if self.deterministic:
                stack.enter_context(_use_deterministic_kernels())
                stack.enter_context(self._record_nondeterministic_operations())
            yield

    @contextmanager
    def _record_nondeterministic_operations(self) -> Iterator[None]:
        """Context manager that appends to `operations` each operation that torch warns has no
        deterministic kernel; other warnings are shown as usual.
        """
        with warnings.catch_warnings():
            show = warnings.showwarning

            def record_nondeterministic_operation(
                message: Warning | str, *arguments: Any, **named: Any
            ) -> None:
                name = parse_nondeterministic_operation(str(message))
                if name is None:
                    show(message, *arguments, **named)
                elif name not in self.operations:
                    self.operations.append(name)

            warnings.showwarning = record_nondeterministic_operation
            # Python shows a warning once per process, but each job must record its operations.
            warnings.filterwarnings("always", message=".*determinis")
            yield


def parse_nondeterministic_operation(warning: str) -> str | None:
    """Parse from torch's warning the operation that lacks a deterministic kernel.

    Returns None for any other warning.
    """
    # By the text, since torch gives these warnings no class of their own.
    match = _NO_FIXED_ORDER.fullmatch(warning)
    if match is not None:
        return match["name"]
    return CUBLAS_NAME if _CUBLAS in warning else None


@contextmanager
def _use_deterministic_kernels() -> Iterator[None]:
    """Make torch use deterministic kernels, with a warning where there are none.

    torch also fills new memory with NaN in this mode, to find mistakes; that costs time and is
    switched off. Flash and memory-efficient attention add gradients in no fixed order: attention is
    multiplied out.
    """
    mode = torch.get_deterministic_debug_mode()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    # Warnings and no errors: a job with one such operation is worth more than none, and the
    # manifest names it.
    # `use_deterministic_algorithms` does the same, and imports torch's compiler: two seconds a job.
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@contextmanager
def _use_cudnn_flags(deterministic: bool) -> Iterator[None]:
    """Configure cuDNN's convolutions: deterministic, or the fastest ones found by trial."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    # `benchmark` times the kernels and takes the fastest, which may be another one each time.
    cudnn.deterministic, cudnn.benchmark = deterministic, not deterministic
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before
