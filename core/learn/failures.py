"""The kind of a failed run, by which the worker and the experiments decide what to do."""

from __future__ import annotations

import errno
import os

import torch

from core.learn.data_report import DataHeld
from core.learn.dataset import DataError
from core.learn.loop import NonFinite
from core.learn.onnx.graph import ExportFailed

OUT_OF_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Parts of messages of memory errors that have no type of their own."""


def kind_of(error: Exception) -> str:
    """ "data", "data-held", "non-finite", "export", "memory", "disk" or "code"."""
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, DataHeld):
        return "data-held"
    if isinstance(error, NonFinite):
        return "non-finite"
    if isinstance(error, ExportFailed):
        return "export"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(t in str(error) for t in OUT_OF_MEMORY):
        return "memory"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or os.strerror(errno.ENOSPC) in str(error):  # safetensors has an error of its own
        return "disk"
    return "code"
