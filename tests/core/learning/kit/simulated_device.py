"""The device `sim`: CPU memory under another name, to find on a CPU what would go wrong on an
accelerator.

An operation that gets tensors of both devices raises, as it would on a GPU. Everything for which a
GPU would have to wait is counted with the place in the code that asked for it: copies between the
devices that are not `non_blocking`, and operations that need values on the host (`nonzero`, boolean
masks, `unique`). Kernels and numerics are those of the CPU, so a run on `sim` gives the bits of a
run on the CPU.

It cannot show what depends on `device.type == "cuda"`, on kernels or on the amount of memory.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "sim"
FREE_BYTES = 1 << 33
CORE = Path(__file__).parents[4] / "core"

NEED_VALUES = frozenset(
    {
        "_linalg_check_errors",
        "_local_scalar_dense",
        "_unique2",
        "bincount",
        "equal",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
    }
)
"""Operations that give the host a number, or whose result has a size that depends on values."""
INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"})
FACTORIES = (
    "arange",
    "arange.start",
    "arange.start_step",
    "empty.memory_format",
    "empty_strided",
    "eye",
    "eye.m",
    "linspace",
    "rand",
    "randint.low",
    "randn",
    "randperm",
    "tril_indices",
    "triu_indices",
)
"""Operations that make a tensor on a device. Most would otherwise resize an empty one, which a
wrapper cannot.
"""


class BlockingCalls:
    """Counts of what a GPU would have waited for, by the place in core/ that asked for it."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()
        self._paused = 0

    @property
    def total(self) -> int:
        return sum(self.places.values())

    def add(self, operation: str) -> None:
        if not self._paused:
            self.places[f"{_find_place()} {operation}"] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing within the block."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


calls = BlockingCalls()
"""Those of this process."""


class SimTensor(Tensor):
    """A tensor on the device `sim`: sizes, strides and type of a tensor on the CPU, which
    it holds.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> SimTensor:
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            storage_size=held.untyped_storage().nbytes(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"sim({self.held!r})"

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    # Module.to swaps parameters of classes with these two for moved ones, and keeps the module's
    # objects.

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: object) -> SimTensor:
        return SimTensor(inner["held"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares its own as no method
        cls, op: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run_operation(op, args, kwargs or {})


class Backend(_DummyBackendModule):
    """`torch.sim`, with a generator of its own for what is drawn on the device."""

    def __init__(self) -> None:
        self.generator = torch.Generator()
        self.free = FREE_BYTES

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def get_rng_state(self, device: object = None) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        self.generator.set_state(state)

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return self.free, FREE_BYTES

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


backend = Backend()
_library: list[torch.library.Library] = []  # its kernels go with it


def install_device() -> None:
    """Make `torch.device("sim")` known. Call this before the first backward pass of a process."""
    if _library:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=backend)
    library = torch.library.Library("aten", "IMPL")
    for name in FACTORIES:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        library.impl(name, _build_factory(op), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    torch.inference_mode = _set_grad_mode  # type: ignore[assignment,misc]
    _library.append(library)


def _set_grad_mode(mode: bool = True) -> Any:
    """Replace `inference_mode`, in which a tensor of a class of its own cannot be a view."""
    return torch.no_grad() if mode else torch.enable_grad()


def _build_factory(op: Any) -> Any:
    drawing = {"default": "generator", "low": "low_generator"}  # overloads that take a generator
    if (name := op.overloadpacket.__name__).startswith("rand"):
        op = functools.partial(
            getattr(op.overloadpacket, drawing[op._overloadname]), generator=backend.generator
        )

    def make_simulated_tensor(
        *args: Any, device: object = None, pin_memory: object = None, **kwargs: Any
    ) -> SimTensor:
        return SimTensor(op(*args, **kwargs))

    make_simulated_tensor.__name__ = name
    return make_simulated_tensor


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy where torch itself copies, as in `torch.tensor(…, device=…)`."""
    if _is_sim(source) != _is_sim(target) and not non_blocking:
        calls.add("copy")
    _get_held_tensor(target).copy_(_get_held_tensor(source))
    return target


def _run_operation(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operation that has a tensor of the device on the tensors that are held."""
    name, device = op.overloadpacket.__name__, kwargs.get("device")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    to_host = device is not None and torch.device(device).type == "cpu"
    _check_devices(name, args, leaves)
    if _must_wait(name, args, kwargs, to_host):
        calls.add(name)
    inner_args, inner_kwargs = pytree.tree_unflatten(
        [_get_held_tensor(leaf) for leaf in leaves], spec
    )
    if device is not None:
        inner_kwargs["device"] = torch.device("cpu")
    if _has_generator_argument(op):
        if inner_kwargs.get("generator") is not None:
            raise RuntimeError(
                f"{name}: expected a generator of the device {NAME}, but found one of the CPU"
            )
        inner_kwargs["generator"] = backend.generator
    result = op(*inner_args, **inner_kwargs)
    written = (
        {id(leaf.held): leaf for leaf in leaves if _is_sim(leaf)}
        if _has_written_argument(op)
        else {}
    )
    for leaf in written.values():
        if leaf.shape != leaf.held.shape:  # as `squeeze_` within `matmul`
            leaf.data = SimTensor(leaf.held)

    def wrap_result(value: Any) -> Any:
        if not isinstance(value, Tensor) or to_host:
            return value
        return written[id(value)] if id(value) in written else SimTensor(value)

    return pytree.tree_map(wrap_result, result)


def _check_devices(name: str, args: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Raise RuntimeError for tensors of both devices. Numbers and indices may come from the CPU."""
    if name == "copy_":
        return
    if name in INDEXING and _is_sim(args[0]):
        leaves = args[2:]
    for leaf in leaves:
        if isinstance(leaf, Tensor) and not _is_sim(leaf) and leaf.dim() > 0:
            raise RuntimeError(
                f"{name}: expected all tensors to be on the same device, but found {NAME} and cpu"
            )


def _must_wait(name: str, args: Sequence[Any], kwargs: dict[str, Any], to_host: bool) -> bool:
    """Return whether the host of a GPU waits for the operation."""
    if name == "_to_copy":
        return to_host and not kwargs.get("non_blocking")
    if name == "copy_":
        return _is_sim(args[0]) != _is_sim(args[1]) and not (len(args) > 2 and args[2])
    if name in INDEXING:
        indices = [index for index in args[1] if index is not None]
        masks = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        filled = name != "index" and args[2].numel() == 1  # one mask and one value: masked_fill
        return any(not _is_sim(index) for index in indices) or (masks and not filled)
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    return name in NEED_VALUES


@functools.cache
def _has_written_argument(op: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments)


@functools.cache
def _has_generator_argument(op: Any) -> bool:
    return any(argument.name == "generator" for argument in op._schema.arguments)


def _is_sim(value: object) -> bool:
    return isinstance(value, SimTensor)


def _get_held_tensor(value: Any) -> Any:
    return value.held if isinstance(value, SimTensor) else value


def _find_place() -> str:
    """Return the innermost line of core/ that is being run, as `learning/training/loop.py:12`."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(CORE):
            return f"{path.relative_to(CORE)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"
