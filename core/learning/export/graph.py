"""Writing of a version as an ONNX file that is the same, byte for byte, on every machine.

`torch.onnx.export` records source lines of its machine beside each node: they are removed.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from core.contract.jobs.export_job import GRAPH, GRAPH_DATA, INPUT, OPSET
from core.learning.export.probability_module import ProbabilityModule

BATCH = "batch"
"""Name of the dynamic dimension, the number of images."""
EXTERNAL_FROM_BYTES = 1_900_000_000
"""Bytes of weights above which all are in a file of their own.

A protobuf file holds less than 2 GiB.
"""
_TRACED = 2
"""Number of images to trace the graph with: 1 would become a constant."""


class ExportFailed(Exception):
    """Raised when a version cannot be exported, or its graph predicts differently.

    The text is for a person.
    """


def write_onnx_graph(
    probability_module: ProbabilityModule, channels: int, size: int, folder: Path
) -> list[str]:
    """Write the ONNX graph of a version to a folder; return the names of its files, the graph
    first.

    Raises:
        ExportFailed: the exporter has no rule for one of the network's operations, or fixes the
            batch.
    """
    model = _trace_onnx_graph(
        probability_module, torch.zeros(_TRACED, channels, size, size, dtype=torch.uint8)
    )
    _remove_source_metadata(model)
    # An optional package: without it, a worker only leaves exports to others.
    from onnx_ir import save

    weights = sum(
        value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value
    )
    data = GRAPH_DATA if weights > EXTERNAL_FROM_BYTES else None
    save(model, folder / GRAPH, external_data=data)
    return [GRAPH] if data is None else [GRAPH, data]


def _trace_onnx_graph(probability_module: ProbabilityModule, images: torch.Tensor) -> Any:
    """Trace a probability module to an ONNX graph with a dynamic batch, an `onnx_ir.Model`."""
    fast = torch.backends.mha.get_fastpath_enabled()
    # The fast path fuses operations for which ONNX has no node.
    torch.backends.mha.set_fastpath_enabled(False)
    # The exporter's warnings are about its own internals.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A dimension named by a string is `Dim.DYNAMIC`. With a `Dim` of our own, one that the
            # tracer takes for fixed (a ViT's) silently ends in a graph for two images alone.
            program = torch.onnx.export(
                probability_module,
                (images,),
                dynamo=True,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=probability_module.output_names,
                dynamic_shapes=({0: BATCH},),
                verbose=False,
            )
    except Exception as error:
        raise ExportFailed(
            f"PyTorch cannot write it as an ONNX graph ({_format_root_cause(error)})"
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    assert program is not None, "torch.onnx.export returns a program where dynamo is on"
    return program.model


def _remove_source_metadata(model: Any) -> None:
    """Remove all metadata from an ONNX graph, since it names source lines of this machine."""
    model.metadata_props.clear()
    # Functions have bodies of their own, whose nodes name source lines as well.
    for graph in (model.graph, *model.functions.values()):
        graph.metadata_props.clear()
        graph.doc_string = None
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def _format_root_cause(error: BaseException) -> str:
    """Return the first line of an error's root cause, in at most 300 characters."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]
